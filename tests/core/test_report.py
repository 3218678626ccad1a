"""The run report: what a user would look for is there, and nothing they did not ask for."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from lustrum import __version__
from lustrum.core.cost import prices
from lustrum.core.failures import TABLE, Failure
from lustrum.core.record import Mishap, Moment, Outcome, State
from lustrum.core.record_parts import Progress, Teardown
from lustrum.show.report import render

from testing import records

HOSTILE = "<script>alert('x')</script><img src=x onerror=alert(1)> & \"quoted\" $\\frac{"


class Page(HTMLParser):
    """Collects tags and attributes, and complains of what is left open."""

    VOID = frozenset({"meta", "br", "img", "link", "input", "hr"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.words.append(data.strip())

    @property
    def text(self) -> str:
        return " ".join(word for word in self.words if word)


@pytest.fixture(scope="module")
def page() -> Page:
    return Page(render(records.eventful_run(), records.events()))


class TestVersion:
    """A report names the version that drew it, and the one that started the run if another."""

    def test_of_a_run_of_the_same_version(self) -> None:
        run = records.eventful_run().model_copy(update={"lustrum_version": __version__})
        assert f"Lustrum {__version__}, as of" in Page(render(run, [])).text

    def test_of_a_run_that_an_older_version_started(self) -> None:
        run = records.eventful_run().model_copy(update={"lustrum_version": "0.0.9"})
        assert f"Lustrum {__version__}, started by 0.0.9, as of" in Page(render(run, [])).text

    def test_of_a_record_from_before_versions_were_recorded(self) -> None:
        assert f"Lustrum {__version__}, as of" in Page(render(records.eventful_run(), [])).text


class TestContent:
    def test_render_names_outcome_sentence_and_figures(self, page: Page) -> None:
        for expected in (
            "SUCCEEDED",
            records.RUN_ID,
            "step 20 of 20 is saved",
            "5 h 25 min",
            f"${records.eventful_run().plan.worst_cost:,.2f}",
            records.cost(records.eventful_run()),
        ):
            assert expected in page.text

    def test_render_sets_cost_beside_the_worst_case_by_resource(self, page: Page) -> None:
        node = prices().node("a4-highgpu-8g", "spot")
        assert f"${183 / 60 * 8 * node:,.2f}" in page.text  # they were up for 183 minutes
        assert f"${6 * 8 * node:,.2f}" in page.text
        assert f"list prices of {prices().dated}" in page.text

    def test_render_shows_each_save_and_which_was_exported(self, page: Page) -> None:
        assert page.text.count("947.0 GiB") >= 10
        assert "47 s" in page.text and "verified" in page.text
        assert f"gs://exports/runs/{records.RUN_ID}/step_20/" in page.text

    def test_render_tells_attempts_apart_in_the_reward_plot(self, page: Page) -> None:
        assert "attempt 1" in page.text and "attempt 2" in page.text

    def test_render_ends_the_last_attempt_with_its_training(self, page: Page) -> None:
        assert "1 h 16 min" in page.text  # not the hour and 51 minutes until it was closed

    def test_render_gives_advice_for_every_mishap(self, page: Page) -> None:
        assert TABLE[Failure.STOCKOUT].advice in page.text
        assert TABLE[Failure.PREEMPTED].advice in page.text
        assert "GCE_STOCKOUT" in page.text

    def test_render_shows_teardown_problems_and_zones(self, page: Page) -> None:
        assert "subnetwork is in use" in page.text
        assert "us-east1-b, slot east-1" in page.text and "Not tried: europe-west4-b" in page.text

    def test_render_shows_phases_in_order(self, page: Page) -> None:
        seen = [page.text.index(name) for name in ("provisioning", "training", "verifying")]
        assert seen == sorted(seen) and "waiting for gpus" in page.text

    def test_render_shows_newest_event_first(self, page: Page) -> None:
        assert page.text.index("job.completed") < page.text.index("checkpoint.saved")

    def test_render_says_what_to_do_about_a_failed_run(self) -> None:
        run = records.new_run()
        run.state, run.outcome, run.failure = State.CLOSED, Outcome.FAILED, Failure.QUOTA
        run.reason, run.closed_at = "no quota in us-east1", records.BEGAN + 60
        text = Page(render(run, [])).text
        assert "no quota in us-east1" in text and "lustrum doctor" in text

    def test_render_says_which_zones_were_left_out_and_why(self) -> None:
        run = records.new_run()
        run.unfit = {run.plan.zones[-1]: f"{run.plan.zones[-1]} does not offer Managed Lustre"}
        text = Page(render(run, [])).text
        assert f"Left out: {run.plan.zones[-1]} does not offer Managed Lustre" in text
        assert f"Not tried: {run.plan.zones[-1]}" not in text

    @pytest.mark.parametrize("failure", Failure)
    def test_render_knows_every_failure_class(self, failure: Failure) -> None:
        run = records.new_run()
        run.mishaps = [
            Mishap(failure=failure, at=records.BEGAN, state=State.TRAINING, sentence="it broke")
        ]
        assert failure.value in Page(render(run, [])).text


class TestImports:
    def test_report_needs_no_package_that_close_run_lacks(self) -> None:
        """Its requirements hold jinja2 and matplotlib, not what the command line uses."""
        code = (
            "import sys; from testing import records; from lustrum.show.report import render;"
            "render(records.eventful_run(), []);"
            "print([n for n in ('rich', 'typer', 'httpx', 'google.api_core') if n in sys.modules])"
        )
        root = Path(__file__).parents[2]
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            timeout=120,
            cwd=root,
            env={**os.environ, "PYTHONPATH": f"{root}:{root / 'shared'}"},
            check=True,
        )
        assert done.stdout.strip() == "[]"


class TestMissingData:
    def test_render_of_a_new_run_speaks_instead_of_drawing(self) -> None:
        page = Page(render(records.new_run(), []))
        assert "svg" not in page.tags
        for expected in (
            "is not over",
            "No step with a reward was seen",
            "No checkpoint was saved",
            "No event arrived",
            "No mishap on the way",
            "No zone was entered",
        ):
            assert expected in page.text

    def test_render_without_history_still_works(self) -> None:
        run = records.new_run()
        run.history = []
        assert "no timeline" in Page(render(run, [])).text

    def test_render_leaves_out_rewards_that_are_no_numbers(self) -> None:
        run = records.eventful_run()
        run.series = [
            Progress(step=1, reward=float("nan"), attempt=1),
            Progress(step=2, reward=float("inf"), attempt=1),
            Progress(step=3, reward=None, attempt=1),
        ]
        assert "No step with a reward was seen" in Page(render(run, [])).text

    def test_render_survives_a_clock_that_cannot_be_believed(self) -> None:
        events = [{"type": "job.progress", "at": 1e300}, {"type": "job.progress", "at": "x" * 999}]
        assert "job.progress" in Page(render(records.new_run(), events)).text

    def test_render_survives_a_thousand_points_and_saves(self) -> None:
        run = records.eventful_run()
        run.plan.max_num_steps = 1000
        run.series = [
            Progress(step=step, reward=step / 1000, attempt=1 + step // 100)
            for step in range(1, 1000)
        ]
        run.saves = [run.saves[0].model_copy(update={"step": step}) for step in range(1, 1000)]
        run.history += [Moment(state=State.TRAINING, at=records.BEGAN + n) for n in range(200)]
        assert "attempt 10" in Page(render(run, [])).text

    def test_render_of_a_teardown_that_never_ended_says_so_calmly(self) -> None:
        run = records.new_run()
        run.teardown = Teardown(execution="t", final=True, claimed_at=0, lease_until=0)
        assert "No problem was met so far" in Page(render(run, [])).text


class TestSafety:
    def test_render_escapes_hostile_text_everywhere(self) -> None:
        run = records.eventful_run()
        run.plan.name = run.reason = HOSTILE
        run.log_uri = run.plan.code = run.plan.model = HOSTILE
        run.plan.overrides = {"policy.model_name": HOSTILE}
        run.request = run.request.model_copy(
            update={"overrides": {"a.b": HOSTILE}, "name": HOSTILE}
        )
        assert run.teardown is not None and run.export is not None
        run.teardown.problems = [HOSTILE]
        run.export.uri = run.export.problem = HOSTILE
        run.history[1].note = HOSTILE
        for mishap in run.mishaps:
            mishap.sentence = mishap.zone = HOSTILE
        events = [{"type": HOSTILE, "at": HOSTILE, "message": HOSTILE}]
        text = render(run, events)
        page = Page(text)
        assert "script" not in page.tags and "img" not in page.tags
        assert not [name for name, _ in page.attributes if name.startswith("on")]
        assert page.text.count("alert('x')") >= 10

    def test_render_loads_nothing_from_anywhere(self, page: Page) -> None:
        assert not {"script", "link", "img", "iframe", "object", "image"} & set(page.tags)
        refers = [
            value for name, value in page.attributes if name in ("src", "href", "xlink:href")
        ]
        assert refers and all(value.startswith("#") for value in refers)
        style = render(records.eventful_run(), [])
        assert not re.search(r"url\((?!#)|@import", style)

    def test_render_gives_every_id_once_and_every_reference_a_target(self, page: Page) -> None:
        ids = [value for name, value in page.attributes if name == "id"]
        assert len(ids) == len(set(ids))
        wanted = {value[1:] for name, value in page.attributes if name == "xlink:href"}
        assert wanted <= set(ids)

    def test_render_uses_only_colours_of_the_page_in_plots(self) -> None:
        text = render(records.eventful_run(), [])
        plots = text[text.index("<svg") : text.rindex("</svg>")]
        assert not re.search(r"(fill|stroke|color): #(?!ffffff00)", plots)

    def test_render_is_the_same_for_the_same_record(self) -> None:
        run, events = records.eventful_run(), records.events()
        assert render(run, events) == render(run, events)
