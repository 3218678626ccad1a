"""The runner: statuses, outputs, time limits, cancelling, substitutions, and the REST in front of
it.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from google.cloud.devtools.cloudbuild_v1.types import Build
from google.protobuf import json_format
from lustrum.adapters.builds import _build

from infra.local.builds.filters import matches
from infra.local.builds.runner import Runner
from infra.local.builds.server import CloudBuild, serve
from infra.local.builds.substitute import Refused, substitute

PROJECT = "p"
TRIGGER = "projects/p/locations/us-east1/triggers/t"


class Played:
    """A runner with its REST and what it published."""

    def __init__(self, root: Path) -> None:
        self.published: list[tuple[str, str]] = []
        self.runner = Runner(root, PROJECT, {"PATH": "/usr/bin:/bin"}, self._publish)
        file = {"steps": [shell("echo $0 $_X; true")], "tags": ["$_X"]}
        trigger = {"id": "t", "name": "t", "build": file, "substitutions": {"_X": "fixed"}}
        self.api = CloudBuild(self.runner, {TRIGGER: trigger})

    def _publish(self, data: bytes, attributes: Mapping[str, str]) -> None:
        assert json.loads(data)["id"] == attributes["buildId"]
        self.published.append((attributes["buildId"], attributes["status"]))

    def run(self, *steps: dict[str, Any], **build: Any) -> dict[str, Any]:
        """Run a build to its end."""
        made = self.runner.create({"steps": list(steps), **build}, "us-east1")
        return self.runner.wait(made["id"], 30.0)

    def log(self, build: Mapping[str, Any]) -> str:
        """Return a build's log."""
        return Path(str(build["logUrl"]).removeprefix("file://")).read_text()


def shell(text: str, **step: Any) -> dict[str, Any]:
    """Return a step that runs a shell text."""
    return {"name": "image:1", "entrypoint": "bash", "args": ["-c", text], **step}


@pytest.fixture
def played(tmp_path: Path) -> Iterator[Played]:
    found = Played(tmp_path / "builds")
    yield found
    found.runner.close()


def until(condition: Callable[[], Any]) -> None:
    """Poll until a condition holds."""
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "the condition never held"
        time.sleep(0.01)


class TestRunner:
    def test_build_that_succeeds(self, played: Played) -> None:
        build = played.run(
            shell('echo one > file; echo -n "{\\"a\\": 1}" > "$$BUILDER_OUTPUT/output"'),
            shell("cat file; exit 0"),
        )
        assert build["status"] == "SUCCESS"
        outputs = [base64.b64decode(one) for one in build["results"]["buildStepOutputs"]]
        assert outputs == [b'{"a": 1}', b""]
        assert [step["status"] for step in build["steps"]] == ["SUCCESS", "SUCCESS"]
        assert [status for _, status in played.published] == ["QUEUED", "WORKING", "SUCCESS"]
        assert "one" in played.log(build)

    def test_build_is_a_build_of_the_api_and_of_our_adapter(self, played: Played) -> None:
        build = played.run(shell('echo -n "{\\"ok\\": true}" > "$$BUILDER_OUTPUT/output"'))
        json_format.ParseDict(build, Build.pb(Build()))
        read = _build(build)
        assert (read.status, dict(read.output), read.is_live) == ("SUCCESS", {"ok": True}, False)

    def test_step_that_fails_ends_the_build(self, played: Played) -> None:
        build = played.run(shell("exit 3"), shell("echo never"))
        assert build["status"] == "FAILURE"
        assert build["failureInfo"]["type"] == "USER_BUILD_STEP"
        assert "non-zero status: 3" in build["failureInfo"]["detail"]
        assert "never" not in played.log(build)

    @pytest.mark.parametrize("excuse", [{"allowFailure": True}, {"allowExitCodes": [3]}])
    def test_step_that_may_fail(self, played: Played, excuse: dict[str, Any]) -> None:
        assert played.run(shell("exit 3", **excuse), shell("true"))["status"] == "SUCCESS"

    def test_build_that_takes_too_long(self, played: Played) -> None:
        build = played.run(shell("sleep 60"), timeout="0.2s")
        assert build["status"] == "TIMEOUT"

    def test_cancel_kills_everything_a_step_started(self, played: Played, tmp_path: Path) -> None:
        pid = tmp_path / "pid"
        # timeout(1) gives its command a process group of its own.
        step = shell(f"timeout 900 bash -c 'echo $$$$ > {pid}; sleep 600' & trap '' INT; wait")
        made = played.runner.create({"steps": [step]}, "us-east1")
        until(lambda: pid.exists() and pid.read_text().strip())
        build = played.runner.cancel(made["id"])
        assert build["status"] == "CANCELLED"
        child = int(pid.read_text())
        until(lambda: not psutil.pid_exists(child) or _is_dead(child))
        assert played.published[-1] == (made["id"], "CANCELLED")

    def test_step_leaves_no_process_behind(self, played: Played, tmp_path: Path) -> None:
        pid = tmp_path / "pid"
        played.run(shell(f"sleep 600 & echo $$! > {pid}"))
        until(lambda: _is_dead(int(pid.read_text())))

    def test_close_ends_what_runs(self, played: Played) -> None:
        made = played.runner.create({"steps": [shell("sleep 600")]}, "us-east1")
        until(lambda: played.runner.get(made["id"])["status"] == "WORKING")
        played.runner.close()
        assert played.runner.get(made["id"])["status"] == "CANCELLED"

    def test_step_gets_no_environment_of_ours(
        self, played: Played, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("LUSTRUM_HF_TOKEN", "hf_secret")
        build = played.run(shell("env"))
        assert "hf_secret" not in played.log(build)

    def test_script_takes_no_substitution(self, played: Played) -> None:
        step = {"name": "i:1", "script": "#!/bin/bash\necho v=$V", "env": ["V=$_X"]}
        build = played.run(step, substitutions={"_X": "told"})
        assert "v=told" in played.log(build)

    def test_workspace_is_shared_and_home_is_not_ours(self, played: Played) -> None:
        build = played.run(shell("pwd; echo $$HOME; touch a"), shell("ls"))
        assert build["id"] in played.log(build)
        assert "\na\n" in played.log(build)

    @pytest.mark.parametrize(
        "build",
        [
            {"steps": []},
            {"steps": [shell("echo $HOME")]},
            {"steps": [shell("echo $_UNKNOWN")]},
            {"steps": [shell("true")], "substitutions": {"bad": "x"}},
            {"steps": [{"name": "i", "script": "true", "args": ["x"]}]},
        ],
    )
    def test_build_the_service_would_refuse(self, played: Played, build: dict[str, Any]) -> None:
        with pytest.raises(Refused):
            played.runner.create(build)


def _is_dead(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


class TestSubstitute:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("a-$_X-b", "a-v-b"),
            ("${_X}s", "vs"),
            ("$$_X", "$_X"),
            ("$BUILD_ID", "id"),
            ("$COMMIT_SHA", ""),
            ("$_OTHER", ""),
            ("100$", "100$"),
        ],
    )
    def test_substitute_a_text(self, text: str, expected: str) -> None:
        assert substitute(text, {"_X": "v", "BUILD_ID": "id"}, loose=True) == expected

    def test_substitute_strict(self) -> None:
        with pytest.raises(Refused, match="_OTHER"):
            substitute("$_OTHER", {}, loose=False)


class TestFilter:
    BUILD: Mapping[str, Any] = {
        "id": "1",
        "status": "WORKING",
        "tags": ["lustrum", "rl-4f0c2a9d31"],
        "createTime": "2026-01-01T00:00:00Z",
        "substitutions": {"_RUN_ID": "rl-4f0c2a9d31"},
    }

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("", True),
            ('tags="rl-4f0c2a9d31"', True),
            ('tags="rl-4f0c2a9d3"', False),
            ('tags=lustrum AND status="WORKING"', True),
            ('(status="QUEUED" OR status="WORKING") AND tags="lustrum"', True),
            ('status="QUEUED" OR status="PENDING"', False),
            ('create_time>"2025-12-31T00:00:00Z"', True),
            ('substitutions._RUN_ID="rl-4f0c2a9d31"', True),
        ],
    )
    def test_filter(self, text: str, expected: bool) -> None:
        assert matches(self.BUILD, text) is expected

    @pytest.mark.parametrize("text", ["tags", 'color="red"', '(tags="a"', 'tags="a" OR'])
    def test_filter_that_cannot_be_read(self, text: str) -> None:
        with pytest.raises(ValueError, match="filter"):
            matches(self.BUILD, text)


class TestRest:
    @pytest.fixture
    def client(self, played: Played) -> Iterator[httpx.Client]:
        server = serve(played.api)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        with httpx.Client(base_url=url, trust_env=False, timeout=20) as client:
            yield client
        server.shutdown()
        server.server_close()

    def test_trigger_runs_loose_and_with_its_own_values(
        self, client: httpx.Client, played: Played
    ) -> None:
        body = {"source": {"substitutions": {"_X": "given", "_MISSPELT": "passes"}}}
        operation = client.post(f"/v1/{TRIGGER}:run", json=body).json()
        build = operation["metadata"]["build"]
        assert build["status"] == "QUEUED"
        assert build["tags"] == ["given"]
        played.runner.wait(build["id"], 20)
        done = client.get(f"/v1/{operation['name']}").json()
        assert done["done"]
        assert done["response"]["status"] == "SUCCESS"
        assert played.run(shell("true"))  # another place's builds stay apart
        listed = client.get("/v1/projects/p/builds").json()
        assert listed == {}

    def test_build_of_the_global_place(self, client: httpx.Client, played: Played) -> None:
        operation = client.post("/v1/projects/p/builds", json={"steps": [shell("exit 1")]}).json()
        identity = operation["metadata"]["build"]["id"]
        assert operation["name"].startswith("operations/build/p/")
        played.runner.wait(identity, 20)
        done = client.get(f"/v1/{operation['name']}").json()
        assert "error" in done
        assert client.get(f"/v1/projects/p/builds/{identity}").json()["status"] == "FAILURE"

    def test_list_by_tag_newest_first_in_pages(self, client: httpx.Client, played: Played) -> None:
        ids = [played.run(shell("true"), tags=["x"])["id"] for _ in range(3)]
        path = "/v1/projects/p/locations/us-east1/builds"
        first = client.get(path, params={"filter": 'tags="x"', "pageSize": 2}).json()
        rest = client.get(
            path, params={"filter": 'tags="x"', "pageSize": 2, "pageToken": first["nextPageToken"]}
        ).json()
        assert [one["id"] for one in first["builds"] + rest["builds"]] == ids[::-1]

    def test_cancel(self, client: httpx.Client, played: Played) -> None:
        made = played.runner.create({"steps": [shell("sleep 600")]}, "us-east1")
        path = f"/v1/projects/p/locations/us-east1/builds/{made['id']}"
        assert client.post(f"{path}:cancel", json={}).json()["status"] == "CANCELLED"
        again = client.post(f"{path}:cancel", json={})
        assert (again.status_code, again.json()["error"]["status"]) == (400, "FAILED_PRECONDITION")

    @pytest.mark.parametrize(
        ("method", "path", "status"),
        [
            ("GET", "/v1/projects/p/locations/us-east1/builds/none", 404),
            ("GET", "/v1/projects/other/builds", 404),
            ("POST", "/v1/projects/p/locations/us-east1/triggers/none:run", 404),
            ("GET", "/v1/projects/p/builds?filter=color%3Dred", 400),
            ("POST", "/v1/projects/p/builds", 400),
            ("GET", "/elsewhere", 404),
        ],
    )
    def test_refusals(self, client: httpx.Client, method: str, path: str, status: int) -> None:
        answer = client.request(method, path)
        assert answer.status_code == status
        assert answer.json()["error"]["message"]

    def test_body_that_is_no_json(self, client: httpx.Client) -> None:
        assert client.post("/v1/projects/p/builds", content=b"{").status_code == 400
