"""`lustrum list`, `watch`, `report`, `dashboard`."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from lustrum.adapters.gke import ClusterInfo
from lustrum.core import names
from lustrum.core.errors import NotFound
from lustrum.core.record import Moment, Outcome, Run, State

from testing import records, services
from tests.cli.conftest import Shell

COST = records.cost(records.eventful_run())


def closed(outcome: Outcome) -> Run:
    run = records.eventful_run()
    run.outcome = outcome
    return run


class TestWatch:
    @pytest.mark.parametrize("outcome", Outcome)
    def test_watch_exits_0_only_for_success(self, lustrum: Shell, outcome: Outcome) -> None:
        lustrum.ledger.create(closed(outcome))
        result = lustrum("watch", records.RUN_ID)
        assert result.exit_code == (0 if outcome is Outcome.SUCCEEDED else 1)
        assert result.stdout.splitlines()[-1] == (
            f"run {records.RUN_ID} CLOSED {outcome.value} step 20/20 cost {COST} "
            f"report gs://reports/runs/{records.RUN_ID}/report.html"
        )

    def test_watch_follows_changes_until_the_end(self, lustrum: Shell) -> None:
        lustrum.ledger.create(records.new_run())

        def proceed() -> None:
            if len(lustrum.slept) == 1:
                lustrum.ledger.change(records.RUN_ID, start_training)
            if len(lustrum.slept) == 3:
                lustrum.ledger.change(
                    records.RUN_ID,
                    lambda run: run.__dict__.update(records.eventful_run().__dict__),
                )

        def start_training(run: Run) -> None:
            run.state = State.TRAINING
            run.history = [*run.history, Moment(state=State.TRAINING, at=lustrum.now)]

        lustrum.on_sleep = proceed
        result = lustrum("watch", records.RUN_ID)
        assert result.exit_code == 0
        assert len(lustrum.slept) == 3 and set(lustrum.slept) == {2.0}
        assert result.stdout.count("TRAINING") >= 1

    def test_watch_json_is_one_object_a_change(self, lustrum: Shell) -> None:
        lustrum.ledger.create(records.new_run())

        def proceed() -> None:
            if len(lustrum.slept) == 5:
                lustrum.ledger.change(
                    records.RUN_ID,
                    lambda run: run.__dict__.update(records.eventful_run().__dict__),
                )

        lustrum.on_sleep = proceed
        result = lustrum("watch", records.RUN_ID, "--json")
        first, last = (json.loads(line) for line in result.stdout.splitlines())
        assert result.exit_code == 0
        assert (first["state"], first["step"], first["outcome"]) == ("REQUESTED", 0, None)
        assert (last["state"], last["step"], last["outcome"]) == ("CLOSED", 20, "SUCCEEDED")
        assert last["spent_usd"] == pytest.approx(float(COST.strip("$").replace(",", "")))

    def test_report_json_has_the_bill_whose_parts_sum_to_the_whole(self, lustrum: Shell) -> None:
        lustrum.ledger.create(records.eventful_run())
        result = lustrum("report", records.RUN_ID, "--json")
        found = json.loads(result.stdout)
        bill = found["bill"]
        assert sum(bill["resources_usd"].values()) == pytest.approx(bill["total_usd"])
        parts = [one["usd"] for one in bill["accelerators"].values()]
        assert sum(parts) == pytest.approx(bill["resources_usd"]["accelerators"])
        assert [one["state"] for one in found["phases"]][:2] == ["REQUESTED", "PROVISIONING"]
        assert found["original_recipe"]["idle_usd"] > 0

    def test_watch_of_an_unknown_run_gives_it_a_minute(self, lustrum: Shell) -> None:
        result = lustrum("watch", "rl-0123456789")
        assert result.exit_code == 2 and "is not a run known here" in result.stderr
        assert 50 < sum(lustrum.slept) < 70

    def test_watch_interrupted_says_that_the_run_goes_on(self, lustrum: Shell) -> None:
        lustrum.ledger.create(records.new_run())

        def interrupt() -> None:
            raise KeyboardInterrupt

        lustrum.on_sleep = interrupt
        result = lustrum("watch", records.RUN_ID)
        assert result.exit_code == 130
        assert f"lustrum cancel {records.RUN_ID}" in result.stderr


class TestList:
    def test_list_shows_newest_first_in_one_line_each(self, lustrum: Shell) -> None:
        lustrum.ledger.create(records.eventful_run())
        younger = records.new_run(name="younger").model_copy(
            update={"run_id": names.run_id("younger"), "created_at": records.BEGAN + 10}
        )
        lustrum.ledger.create(younger)
        head, first, second = lustrum("list").stdout.splitlines()
        assert head.split()[:3] == ["RUN", "NAME", "STATE"]
        assert first.split()[:3] == [younger.run_id, "younger", "REQUESTED"]
        assert second.split()[:5] == [
            records.RUN_ID,
            "nightly",
            "SUCCEEDED",
            "20/20",
            "us-central1-b",
        ]
        assert COST in second

    def test_list_shows_the_place_of_a_run_that_waits(self, lustrum: Shell) -> None:
        holds = records.new_run().model_copy(update={"hard_deadline_at": 4_000_000_000.0})
        lustrum.ledger.create(holds)
        zone = holds.plan.zones[0]
        lustrum.ledger.lease_slot(["only"], holds.run_id)
        waits = records.new_run().model_copy(
            update={"run_id": names.run_id("w"), "state": State.QUEUED, "asked_at": time.time()}
        )
        lustrum.ledger.create(waits)
        slot = services.slot("only", names.region_of(zone))
        lustrum.env["LUSTRUM_SLOTS"] = json.dumps([slot])
        result = lustrum("list")
        assert f"1. for {names.region_of(zone)}, by 2096-10-02" in result.stdout

    def test_list_live_leaves_out_what_is_over(self, lustrum: Shell) -> None:
        lustrum.ledger.create(records.eventful_run())
        assert "no run is alive" in lustrum("list", "--live").stdout

    def test_list_of_nothing_says_how_to_begin(self, lustrum: Shell) -> None:
        assert "lustrum start" in lustrum("list").stdout

    def test_list_json_is_one_record_a_line(self, lustrum: Shell) -> None:
        lustrum.ledger.create(records.eventful_run())
        [line] = lustrum("list", "--json").stdout.splitlines()
        assert Run.model_validate(json.loads(line)).run_id == records.RUN_ID

    def test_list_html_is_a_page_with_links_to_each_run(
        self, lustrum: Shell, tmp_path: Path
    ) -> None:
        lustrum.ledger.create(records.eventful_run())
        path = tmp_path / "runs.html"
        result = lustrum("list", "--html", str(path))
        assert result.exit_code == 0 and result.stdout.strip() == str(path)
        link = f"https://storage.cloud.google.com/reports/runs/{records.RUN_ID}/index.html"
        assert link in path.read_text()


class TestReport:
    def test_report_open_shows_what_it_wrote(self, lustrum: Shell, tmp_path: Path) -> None:
        lustrum.ledger.create(records.eventful_run())
        path = tmp_path / "r.html"
        result = lustrum("report", records.RUN_ID, "-o", str(path), "--open")
        assert result.exit_code == 0 and lustrum.opened == [path.as_uri()]
        result = lustrum("report", records.RUN_ID, "-o", "-", "--open")
        assert result.exit_code == 2 and lustrum.opened == [path.as_uri()]

    def test_report_writes_one_page(self, lustrum: Shell, tmp_path: Path) -> None:
        lustrum.ledger.create(records.eventful_run())
        for number, event in enumerate(records.events()):
            lustrum.ledger.append_event(records.RUN_ID, str(number), event)
        path = tmp_path / "r.html"
        result = lustrum("report", records.RUN_ID, "-o", str(path))
        assert result.exit_code == 0 and result.stdout.strip() == str(path)
        page = path.read_text()
        assert page.startswith("<!doctype html>") and "checkpoint.saved" in page

    def test_report_of_a_living_run_goes_to_standard_output(self, lustrum: Shell) -> None:
        lustrum.ledger.create(records.new_run())
        assert "This run is not over" in lustrum("report", records.RUN_ID, "-o", "-").stdout

    def test_report_of_a_forgotten_run_is_the_kept_page(self, lustrum: Shell) -> None:
        uri = f"gs://reports/runs/{records.RUN_ID}/report.html"
        lustrum.storage.objects[uri] = b"<p>kept</p>"
        assert lustrum("report", records.RUN_ID, "-o", "-").stdout == "<p>kept</p>\n"

    def test_report_that_cannot_be_written_is_told(self, lustrum: Shell) -> None:
        lustrum.ledger.create(records.eventful_run())
        result = lustrum("report", records.RUN_ID, "-o", "/no/such/folder/r.html")
        assert result.exit_code == 2 and "--output" in result.stderr


class FakeGke:
    """One cluster, or none."""

    def __init__(self, cluster: ClusterInfo | None) -> None:
        self.cluster = cluster

    def find(self, name: str) -> ClusterInfo:
        if self.cluster is None:
            raise NotFound(f"there is no cluster {name}")
        return self.cluster


class TestDashboard:
    @pytest.fixture
    def served(self, monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
        calls: list[tuple[object, ...]] = []

        def serve(endpoint: str, service: str, tokens: object, port: int, console: object) -> int:
            calls.append((endpoint, service, port))
            return 0

        monkeypatch.setattr("lustrum.adapters.dashboard.serve", serve)
        return calls

    def test_dashboard_goes_to_the_cluster_of_the_run(
        self, lustrum: Shell, served: list[tuple[object, ...]]
    ) -> None:
        lustrum.ledger.create(records.new_run())
        lustrum.gke = FakeGke(ClusterInfo(records.RUN_ID, "us-east1-b", "RUNNING", "host", {}))
        assert lustrum("dashboard", records.RUN_ID, "--port", "0").exit_code == 0
        assert served == [("host", f"{records.RUN_ID}-head-svc", 0)]

    @pytest.mark.parametrize(
        "cluster", [None, ClusterInfo(records.RUN_ID, "us-east1-b", "PROVISIONING", "", {})]
    )
    def test_dashboard_before_there_is_one_says_so(
        self, lustrum: Shell, served: list[tuple[object, ...]], cluster: ClusterInfo | None
    ) -> None:
        lustrum.ledger.create(records.new_run())
        lustrum.gke = FakeGke(cluster)
        result = lustrum("dashboard", records.RUN_ID)
        assert result.exit_code == 2 and " yet" in result.stderr and not served

    def test_dashboard_of_a_run_that_is_over_points_to_the_report(
        self, lustrum: Shell, served: list[tuple[object, ...]]
    ) -> None:
        lustrum.ledger.create(records.eventful_run())
        result = lustrum("dashboard", records.RUN_ID)
        assert result.exit_code == 2 and "lustrum report" in result.stderr and not served
