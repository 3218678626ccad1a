"""A new release over runs under way: old records live on, unreadable ones cost no checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lustrum.core.errors import UnreadableRecord
from lustrum.core.failures import Failure
from lustrum.core.record import SCHEMA_VERSION, Mishap, Outcome, Run, State, read_record
from lustrum.handlers import teardown
from lustrum.handlers.reaping import PATIENCE

from testing.life import Life

RECORDS = sorted((Path(__file__).parents[1] / "records").glob("*.json"))
ZONES = {"name": "nightly", "zones": ["us-east1-b", "us-east1-c"]}


def without(text: str, *path: str) -> str:
    """Return a record without one field, as a release that needs it would find it."""
    record = json.loads(text)
    place = record
    for part in path[:-1]:
        place = place[part]
    del place[path[-1]]
    return json.dumps(record)


async def until_saved(life: Life) -> str:
    """Start a run and wait until a checkpoint of it is known."""
    run_id = await life.start(ZONES)
    await life.until(lambda: life.record(run_id).checkpoint is not None)
    return run_id


class TestOldRecords:
    def test_a_record_of_every_release_is_kept(self) -> None:
        assert next(path.stem for path in RECORDS) == "0.1.0"

    @pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
    def test_old_record_lives_on_to_closed(self, path: Path) -> None:
        """The record as it was stored in mid-training, under this release's code."""

        async def story(life: Life) -> Run:
            run_id = await until_saved(life)
            living = life.record(run_id)
            await life.until(lambda: life.record(run_id).progress.step >= 5)
            old = json.loads(path.read_text())
            assert old["run_id"] == run_id and old["state"] == "TRAINING"
            old.update(execution=living.execution, callback_url=living.callback_url)
            life.services.memory.replace_text(run_id, json.dumps(old))
            return await life.until_closed(run_id)

        life = Life()
        run = life.run(story)
        assert run.outcome is Outcome.SUCCEEDED, life.story()
        assert run.safe_export is not None and run.safe_export.step == run.plan.max_num_steps
        assert life.cloud.left() == []

    def test_record_of_a_later_release_is_refused_by_name(self) -> None:
        record = json.loads(RECORDS[0].read_text()) | {"schema_version": SCHEMA_VERSION + 1}
        with pytest.raises(UnreadableRecord, match="schema_version") as caught:
            read_record(json.dumps(record))
        assert not caught.value.retryable


class TestUnreadable:
    def test_unreadable_record_hides_no_other_run(self) -> None:
        async def story(life: Life) -> None:
            bad = await until_saved(life)
            good = await life.start(ZONES, "2")
            text = life.record(bad).model_dump_json()
            life.services.memory.replace_text(bad, without(text, "plan", "timing", "evidence"))
            found = life.services.ledger.unfinished()
            assert [run.run_id for run in found.runs] == [good]
            assert "plan.timing.evidence" in found.unreadable[bad]
            status, answer = life.reap()
            assert status == 500 and bad in json.dumps(answer)

        Life(reaps=False).run(story)

    @pytest.mark.parametrize("ledger_is_away", [True, False])
    def test_run_without_a_record_is_exported_before_it_is_deleted(
        self, ledger_is_away: bool
    ) -> None:
        """The reaper has only labels: GPUs first, then the checkpoints, then the rest."""

        async def story(life: Life) -> str:
            run_id = await until_saved(life)
            record = life.record(run_id)
            life.kill("rl-run")
            if ledger_is_away:
                life.services.memory.broken = RuntimeError("Firestore: 503")
                await life.pass_time(record.hard_deadline_at - life.loop.now() + 1)
            else:
                life.services.memory.replace_text(
                    run_id, without(record.model_dump_json(), "plan", "timing", "evidence")
                )
            began = life.loop.now()
            while life.cloud.clusters or life.cloud.instances:
                assert life.loop.now() < began + 3 * PATIENCE, life.cloud.left()
                life.reap()
                if life.loop.now() < began + PATIENCE:
                    assert life.cloud.instances, "deleted before its last rung"
                await life.pass_time(600)
            life.services.memory.broken = None
            return run_id

        life = Life(reaps=False)
        run_id = life.run(story)
        rescued = [uri for uri in life.cloud.objects if f"/rescued/{run_id}/" in uri]
        assert any("training_info.json" in uri for uri in rescued), life.cloud.objects
        calls = life.cloud.calls
        assert calls.index(("gke", "delete_pool")) < calls.index(("lustre", "delete"))
        assert calls.index(("lustre", "export")) < calls.index(("lustre", "delete"))


class TestStagingTries:
    def test_teardown_knows_the_staging_job_of_every_try(self) -> None:
        """A second staging job was neither stopped nor its log saved."""
        run = read_record(RECORDS[0].read_text())
        assert run.placement is not None
        mishap = Mishap(
            failure=Failure.JOB_LOST,
            at=run.placement.since + 1,
            state=State.STAGING,
            sentence="the job was lost",
        )
        run.mishaps = [mishap]
        assert f"{run.run_id}-stage-z1-2" in teardown.jobs_of(run)
