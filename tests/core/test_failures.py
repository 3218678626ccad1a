from __future__ import annotations

import pytest
from lustrum.core.failures import (
    NODE_LOSS,
    TABLE,
    Failure,
    Reaction,
    classify_text,
    named,
    reaction,
)
from lustrum.core.verdict import Action, Seen, decide

from testing.samples import NOW, run


class TestTable:
    @pytest.mark.parametrize("failure", Failure)
    def test_table_every_failure_has_a_row_and_advice(self, failure: Failure) -> None:
        policy = TABLE[failure]
        assert policy.reaction in Reaction
        assert policy.advice
        assert policy.limit is None or policy.limit >= 0

    def test_table_has_no_row_without_a_failure(self) -> None:
        assert set(TABLE) == set(Failure)

    @pytest.mark.parametrize("failure", Failure)
    def test_reaction_ends_in_stop_after_its_limit(self, failure: Failure) -> None:
        limit = TABLE[failure].limit
        if limit is None:
            assert reaction(failure, 10_000) == TABLE[failure].reaction
            return
        assert reaction(failure, limit) == Reaction.STOP
        if limit:
            assert reaction(failure, limit - 1) == TABLE[failure].reaction

    @pytest.mark.parametrize("failure", Failure)
    def test_judge_knows_what_to_do_about_every_failure(self, failure: Failure) -> None:
        verdict = decide(run(), Seen("FAILED", exit_code=1, failure=failure), NOW)
        wanted = (
            Action.RESUME
            if TABLE[failure].reaction
            in (
                Reaction.RESUME,
                Reaction.RETRY,
            )
            else Action.STOP
        )
        assert (verdict.action, verdict.failure) == (wanted, failure)

    def test_node_loss_is_resumed(self) -> None:
        assert all(TABLE[failure].reaction is Reaction.RESUME for failure in NODE_LOSS)

    @pytest.mark.parametrize("name", (None, "", "stockout", 7, [], "NO_SUCH"))
    def test_named_is_none_for_what_is_no_class(self, name: object) -> None:
        assert named(name) is None


class TestClassifyText:
    @pytest.mark.parametrize(
        ("text", "failure"),
        (
            ("mount.lustre: mount failed: Is the MGS running?", Failure.LUSTRE_NETWORK),
            ("LNet: error -113", Failure.LUSTRE_NETWORK),
            ("InternalNetworkError", Failure.UNKNOWN),
            ('persistentvolumeclaim "lustre-pvc" not found', Failure.LUSTRE_CONFIG),
            ("OSError: [Errno 28] No space left on device", Failure.LUSTRE_FULL),
            ("Quota 'NVIDIA_B200_GPUS' exceeded", Failure.QUOTA),
            ("does not have enough resources available to fulfill the request", Failure.STOCKOUT),
            ("Back-off pulling image: ImagePullBackOff", Failure.IMAGE_ERROR),
            ("instance was preempted", Failure.PREEMPTED),
            ("compute.instances.preempted", Failure.PREEMPTED),
            ("0/3 nodes are available: Preemption is not helpful for scheduling", Failure.UNKNOWN),
            ("No preemption victims found for incoming pod", Failure.UNKNOWN),
            ("failed to create typed patch object: field not declared", Failure.CONFIG),
            ("Error 403: Required permission", Failure.ACCESS),
            ("No available agent to submit job", Failure.INFRA_TRANSIENT),
            ("", Failure.UNKNOWN),
        ),
    )
    def test_classify_text(self, text: str, failure: Failure) -> None:
        assert classify_text(text) == failure
