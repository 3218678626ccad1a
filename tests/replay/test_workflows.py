"""Cases F: what the two workflows and the functions say of waiting, as text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from lustrum.core.record import Stop

from testing.deployed import ROOT
from testing.life import Life

WORKFLOWS = {
    path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / "workflows").glob("*.yaml")
}


def calls(node: Any) -> Iterator[dict[str, Any]]:
    """Every step that calls something."""
    if isinstance(node, dict):
        if isinstance(node.get("call"), str):
            yield node
        for value in node.values():
            yield from calls(value)
    elif isinstance(node, list):
        for value in node:
            yield from calls(value)


class TestWaiting:
    @pytest.mark.parametrize("name", WORKFLOWS)
    def test_f3_every_await_has_a_timeout(self, name: str) -> None:
        for step in calls(WORKFLOWS[name]):
            if step["call"] == "events.await_callback":
                assert step["args"].get("timeout")
            if step["call"].startswith("http."):
                assert step["args"].get("timeout")

    @pytest.mark.parametrize("name", WORKFLOWS)
    def test_f1_every_long_operation_has_a_timeout_above_the_builds(self, name: str) -> None:
        found = [one for one in calls(WORKFLOWS[name]) if one["call"].startswith("googleapis.")]
        assert found
        build = yaml.safe_load((ROOT / "cloudbuild.yaml").read_text())["timeout"]
        for step in found:
            assert step["args"]["connector_params"]["timeout"] > int(str(build).rstrip("s"))

    def test_f3_a_callback_that_never_comes_ends_in_the_teardown(self) -> None:
        from testing.stories import check_nothing_is_left, to_the_end

        life = Life(deliver_events=False)
        run = life.run(to_the_end())
        check_nothing_is_left(life, run)
        assert life.rings == []

    def test_a_question_is_asked_and_repeated_alike_in_both(self) -> None:
        """Each file is deployed alone, so what both need stands in both: the same."""
        life, teardown = WORKFLOWS["rl_run"], WORKFLOWS["teardown"]
        assert [life[name] for name in ("ask", "may_pass")] == [
            teardown[name] for name in ("ask", "may_pass")
        ]

    def test_f5_the_deployed_text_is_the_source(self) -> None:
        """templatefile() would eat ``${...}``."""
        text = (ROOT / "infra" / "terraform" / "workflows.tf").read_text()
        assert re.search(r"source_contents\s*=\s*file\(", text)
        assert "templatefile" not in text

    def test_f7_no_function_waits(self) -> None:
        for path in (
            *(ROOT / "shared/lustrum/handlers").glob("*.py"),
            *(ROOT / "functions").glob("*/main.py"),
        ):
            assert "sleep" not in path.read_text(), path

    def test_f7_a_build_of_90_minutes_is_waited_for_by_the_workflow(self) -> None:
        from testing.cloud import Deploy
        from testing.stories import check_nothing_is_left, to_the_end

        life = Life()
        life.cloud.deploys = [Deploy(seconds=5400)]
        run = life.run(to_the_end())
        check_nothing_is_left(life, run)
        assert run.outcome == "SUCCEEDED"

    @pytest.mark.parametrize("name", ["rl_run", "teardown"])
    def test_stop_words_are_the_librarys(self, name: str) -> None:
        """A word that no answer carries would never match."""
        text = (ROOT / "workflows" / f"{name}.yaml").read_text()
        lists = re.findall(r"\.stop in \[([^\]]*)\]", text)
        words = re.findall(r'\.stop [!=]= "(\w+)"', text)
        words += [word.strip(' "') for found in lists for word in found.split(",")]
        assert words
        assert set(words) <= {*Stop}, words
