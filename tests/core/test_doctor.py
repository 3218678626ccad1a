"""`lustrum doctor`: a good project passes, and each thing that is wrong is named with its cure."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from lustrum.core.errors import NotFound, ServiceError
from lustrum.core.failures import Failure
from lustrum.doctor.checks import examine, run
from lustrum.doctor.findings import Finding, Level, Options
from lustrum.doctor.project_questions import Bindings, Quota, ServiceQuota
from rich.console import Console

from tests.core.doctor_project import AGENT, Ready, bad, email, options


@pytest.fixture
def ready() -> Ready:
    return Ready()


class TestExamine:
    def test_examine_good_project_has_nothing_to_fix(self, ready: Ready) -> None:
        findings = list(examine(options(ready)))
        assert len(findings) >= 15
        assert {f.level for f in findings} == {Level.OK}
        assert all(f.line and "\n" not in f.line for f in findings)

    SPOILS: tuple[tuple[str, Callable[[Ready], Any], Level, str, str], ...] = (
        (
            "services",
            lambda p: p.services.discard("iam.googleapis.com"),
            Level.FAIL,
            "iam.googleapis.com",
            "gcloud services enable iam.googleapis.com --project=my-project",
        ),
        (
            "functions",
            lambda p: p.function_states.update({"stage-data": "FAILED"}),
            Level.FAIL,
            "stage-data: FAILED",
            "terraform",
        ),
        (
            "workflows",
            lambda p: p.workflow_states.pop("teardown"),
            Level.FAIL,
            "teardown: missing",
            "terraform",
        ),
        ("build", lambda p: p.trigger_names.clear(), Level.FAIL, "lustrum-build", "terraform"),
        ("network", lambda p: p.peering_states.clear(), Level.FAIL, "missing", "terraform"),
        (
            "zone us-east1-b",
            lambda p: p.zones_lustre.discard("us-east1-b"),
            Level.FAIL,
            "does not offer Managed Lustre",
            "us-central1-b",
        ),
        (
            "PREEMPTIBLE_NVIDIA_B200_GPUS us-east1",
            lambda p: p.compute.update(PREEMPTIBLE_NVIDIA_B200_GPUS=Quota(8)),
            Level.FAIL,
            "64 needed for 8 nodes",
            "ask for PREEMPTIBLE_NVIDIA_B200_GPUS = 64 in us-east1: https://",
        ),
        (
            "PREEMPTIBLE_NVIDIA_B200_GPUS us-east1",
            lambda p: p.compute.pop("PREEMPTIBLE_NVIDIA_B200_GPUS"),
            Level.FAIL,
            "no such quota",
            "= 64",
        ),
        (
            "PREEMPTIBLE_NVIDIA_B200_GPUS us-east1",
            lambda p: p.compute.update(PREEMPTIBLE_NVIDIA_B200_GPUS=Quota(64, 8)),
            Level.NOTE,
            "8 of 64 used",
            "waits",
        ),
        (
            "IN_USE_ADDRESSES us-east1",
            lambda p: p.compute.update(IN_USE_ADDRESSES=Quota(0)),
            Level.FAIL,
            "NAT",
            "IN_USE_ADDRESSES = 1",
        ),
        (
            "account export-checkpoints",
            lambda p: p.project.discard(
                (
                    "projects/my-project/roles/lustrum_export_checkpoints",
                    email("export-checkpoints"),
                )
            ),
            Level.FAIL,
            "lustrum_export_checkpoints",
            "terraform",
        ),
        (
            "account build",
            lambda p: p.project.discard(("roles/lustre.admin", email("build"))),
            Level.FAIL,
            "roles/lustre.admin",
            "terraform",
        ),
        (
            "function close-run",
            lambda p: p.invokers["close-run"].clear(),
            Level.FAIL,
            "lustrum-teardown may not call it",
            "terraform",
        ),
        (
            "function start-run",
            lambda p: p.invokers["start-run"].add(("roles/run.invoker", "allUsers")),
            Level.FAIL,
            "may be called by allUsers",
            "remove-iam-policy-binding start-run",
        ),
        (
            "export",
            lambda p: p.bucket.clear(),
            Level.FAIL,
            "may not write gs://my-project-lustrum-exports",
            f"--member={AGENT}",
        ),
        (
            "alerts",
            lambda p: p.topics["lustrum-alerts"].clear(),
            Level.FAIL,
            "without an error",
            "terraform",
        ),
        (
            "job",
            lambda p: p.topics["lustrum-events"].clear(),
            Level.NOTE,
            "log is read instead",
            "workload_identity_pool_exists",
        ),
        (
            "secret lustrum-hf-token",
            lambda p: p.secrets.pop("lustrum-hf-token"),
            Level.NOTE,
            "no version",
            "gcloud secrets versions add lustrum-hf-token",
        ),
        (
            "secret lustrum-hf-token",
            lambda p: p.secrets.update({"lustrum-hf-token": "DISABLED"}),
            Level.NOTE,
            "DISABLED",
            "gcloud secrets versions add",
        ),
        (
            "you",
            lambda p: setattr(p, "publish", False),
            Level.FAIL,
            "may not publish",
            "submitters",
        ),
    )

    @pytest.mark.parametrize(("check", "spoil", "level", "says", "cure"), SPOILS)
    def test_examine_names_what_is_wrong_and_its_cure(
        self,
        ready: Ready,
        check: str,
        spoil: Callable[[Ready], Any],
        level: Level,
        says: str,
        cure: str,
    ) -> None:
        spoil(ready)
        (finding,) = bad(ready)
        assert (finding.check, finding.level) == (check, level)
        assert says in finding.line
        assert cure in finding.fix

    def test_examine_looks_at_the_requests_own_bucket(self, ready: Ready) -> None:
        list(examine(options(ready, checkpoints={"export_to": "gs://other-bucket/runs/"})))
        assert ready.asked_bucket == "other-bucket"

    def test_examine_reservation_needs_the_quota_of_standard_machines(self, ready: Ready) -> None:
        ready.compute.pop("PREEMPTIBLE_NVIDIA_B200_GPUS")
        ready.compute["NVIDIA_B200_GPUS"] = Quota(64)
        assert bad(ready, capacity="b200-block", limits={"cost_usd": 9000}) == []

    def test_examine_two_zones_of_a_region_ask_its_quota_once(self, ready: Ready) -> None:
        ready.zones_a4.add("us-east1-c")
        found = examine(options(ready, zones=["us-east1-b", "us-east1-c"]))
        assert [f.check for f in found].count("N2D_CPUS us-east1") == 1


class TestLustreQuota:
    def quotas(self, ready: Ready) -> list[Finding]:
        return [f for f in examine(options(ready)) if f.check.startswith("Lustre quota")]

    def test_lustre_quota_too_small_names_the_quota_zone_and_network(self, ready: Ready) -> None:
        ready.lustre = [
            ServiceQuota(
                "for500MBps", {"zone": "us-east1-b", "network": "x/lustrum"}, frozenset(), 18_000
            )
        ]
        (finding,) = self.quotas(ready)
        assert finding.level is Level.FAIL
        assert "36000 needed" in finding.line
        assert "for500MBps >= 36000 (us-east1-b, network lustrum)" in finding.fix

    def test_lustre_quota_of_another_tier_zone_or_network_does_not_count(
        self, ready: Ready
    ) -> None:
        ready.lustre = [
            ServiceQuota("for1000MBps", {}, frozenset(), 10**6),
            ServiceQuota("for500MBps", {"zone": "us-east1-c"}, frozenset(), 10**6),
            ServiceQuota("for500MBps", {"network": "default"}, frozenset(), 10**6),
        ]
        (finding,) = self.quotas(ready)
        assert finding.level is Level.NOTE
        assert "no quota of the 500" in finding.line

    def test_lustre_quota_of_the_network_binds_before_the_general_one(self, ready: Ready) -> None:
        ready.lustre = [
            ServiceQuota("for500MBps", {}, frozenset({"us-east1-b"}), 10**6),
            ServiceQuota(
                "for500MBps", {"network_name": "lustrum"}, frozenset({"us-east1"}), 9_000
            ),
        ]
        (finding,) = self.quotas(ready)
        assert finding.level is Level.FAIL

    def test_lustre_quota_without_limit_is_enough(self, ready: Ready) -> None:
        ready.lustre = [ServiceQuota("for500MBps", {}, frozenset(), -1)]
        (finding,) = self.quotas(ready)
        assert finding.level is Level.OK


class TestBlindness:
    """What cannot be looked at is not fine."""

    @pytest.mark.parametrize(
        ("error", "cure"),
        [
            (
                ServiceError(Failure.ACCESS, "403 disabled", status=403),
                "roles/iam.securityReviewer",
            ),
            (NotFound("no such topic"), "terraform"),
            (ServiceError(Failure.INFRA_TRANSIENT, "503", retryable=True), "try again"),
            (ServiceError(Failure.CONFIG, "400"), "--project"),
        ],
    )
    def test_examine_probe_that_fails_is_a_failure_and_the_rest_goes_on(
        self, ready: Ready, monkeypatch: pytest.MonkeyPatch, error: ServiceError, cure: str
    ) -> None:
        def blind() -> Bindings:
            raise error

        monkeypatch.setattr(ready, "project_bindings", blind)
        (finding,) = bad(ready)
        assert (finding.check, finding.level) == ("accounts", Level.FAIL)
        assert finding.line.startswith("could not be checked: ")
        assert cure in finding.fix
        assert "you" in [f.check for f in examine(options(ready))]


class TestRun:
    def screen(self) -> tuple[io.StringIO, Console]:
        text = io.StringIO()
        return text, Console(file=text, width=240)

    def test_run_ready_project_exits_0(self, ready: Ready) -> None:
        text, console = self.screen()
        assert run(options(ready), console) == 0
        assert "ready" in text.getvalue()

    def test_run_note_alone_does_not_fail(self, ready: Ready) -> None:
        ready.secrets.clear()
        assert run(options(ready), self.screen()[1]) == 0

    def test_run_failure_exits_1_with_the_cure_beside_it(self, ready: Ready) -> None:
        ready.publish = False
        text, console = self.screen()
        assert run(options(ready), console) == 1
        lines = text.getvalue().splitlines()
        (at,) = [n for n, line in enumerate(lines) if line.startswith("fail")]
        assert "may not publish" in lines[at] and "submitters" in lines[at + 1]
        assert "1 problem to fix" in text.getvalue()

    def test_run_json_is_json_and_nothing_else(self, ready: Ready) -> None:
        ready.bucket.clear()
        text, console = self.screen()
        found = options(ready)
        code = run(Options(found.project, found.region, found.plan, ready, as_json=True), console)
        findings = json.loads(text.getvalue())
        assert code == 1
        assert [f["check"] for f in findings if f["level"] == "fail"] == ["export"]
        assert set(findings[0]) == {"check", "level", "line", "fix"}

    def test_run_cure_can_be_copied_from_a_narrow_screen(self, ready: Ready) -> None:
        ready.bucket.clear()
        text = io.StringIO()
        run(options(ready), Console(file=text, width=60))
        (cure,) = [line for line in text.getvalue().splitlines() if "->" in line]
        assert cure.strip().endswith(f"--member={AGENT} --role=roles/storage.objectUser")

    def test_run_answer_of_the_project_is_not_markup(self, ready: Ready) -> None:
        ready.function_states["stage-data"] = "[red]FAILED[/]"
        text, console = self.screen()
        run(options(ready), console)
        assert "[red]FAILED[/]" in text.getvalue()


class TestNodes:
    def test_boot_disks_of_all_nodes_must_fit(self, ready: Ready) -> None:
        ready.compute["HDB_TOTAL_GB"] = Quota(200)
        (found,) = bad(ready, nodes=4)[-1:]
        assert (found.check, found.level) == ("HDB_TOTAL_GB us-east1", Level.FAIL)
        assert "240 needed for the nodes' boot disks" in found.line
        assert "HDB_TOTAL_GB = 240 in us-east1" in found.fix

    @pytest.mark.parametrize("metric", ["HDB_TOTAL_IOPS", "HDB_TOTAL_THROUGHPUT"])
    def test_speed_of_boot_disks_is_a_note(self, ready: Ready, metric: str) -> None:
        ready.compute[metric] = Quota(1_000)
        (found,) = bad(ready)
        assert (found.check, found.level) == (f"{metric} us-east1", Level.NOTE)
        ready.compute[metric] = Quota(100_000)
        assert not bad(ready)

    @pytest.mark.parametrize(
        ("account", "actor"), [("node", "build"), ("build", "rl-run"), ("build", "teardown")]
    )
    def test_who_may_not_act_as_an_account_is_named(
        self, ready: Ready, account: str, actor: str
    ) -> None:
        ready.accounts[account].discard(("roles/iam.serviceAccountUser", email(actor)))
        (found,) = bad(ready)
        assert found.check == f"account {actor}"
        assert f"may not act as lustrum-{account}" in found.line
        assert "add-iam-policy-binding" in found.fix
        assert email(actor) in found.fix
