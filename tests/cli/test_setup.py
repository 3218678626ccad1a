"""`lustrum init`, `upgrade`, `uninstall` end to end, with a gcloud and a Terraform that keep state
and refuse every argument they do not know.
"""

from __future__ import annotations

import json
import signal
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lustrum.core.setup_steps import RIGHTS, TOKENS, is_data_alone, is_fresh_project, summary
from lustrum.doctor import checks

from testing import records
from tests.cli.conftest import Shell

PROJECT, DIGEST, TOKEN = "my-project", "ab" * 32, "hf_very_secret"
SOURCE = Path(__file__).with_name("fake_programs").read_text()


class FakeRest:
    """testIamPermissions of the project."""

    def __init__(self) -> None:
        self.held = set(RIGHTS)

    def raw(self, service: str, method: str, url: str, **more: Any) -> bytes:
        assert (method, url.rsplit("/", 1)[-1]) == ("POST", f"{PROJECT}:testIamPermissions")
        asked = json.loads(more["content"])["permissions"]
        return json.dumps({"permissions": [one for one in asked if one in self.held]}).encode()


class Desk:
    """A clone, a home, and programs on the PATH."""

    def __init__(self, tmp_path: Path, shell: Shell) -> None:
        self.shell, self.root, self.home = shell, tmp_path / "clone", tmp_path / "home"
        self.state = tmp_path / "cloud.json"
        for folder in ("infra/terraform", "infra/blueprint/steps"):
            (self.root / folder).mkdir(parents=True)
        (self.root / "infra/blueprint/steps/versions.sh").write_text("GCLUSTER_VERSION=v1.95.0\n")
        (self.root / "infra/__init__.py").touch()
        (self.root / "infra/staging.py").write_text(
            "import pathlib\nto = pathlib.Path('build/functions/start_run')\n"
            "to.mkdir(parents=True, exist_ok=True)\n(to / 'main.py').touch()\n"
        )
        (tmp_path / "bin").mkdir()
        for name in ("gcloud", "terraform", "curl"):
            program = tmp_path / "bin" / name
            program.write_text(f"#!{sys.executable}\n{SOURCE}")
            program.chmod(0o755)
        self.cloud: dict[str, Any] = {
            "calls": [], "refuse": {}, "terraform": "1.12.2", "billing": "True", "secrets": {},
            "bootstrap": False, "left": {}, "region": "us-central1", "up": False, "data": False,
            "changes": [], "planned": False, "state": ["google_storage_bucket.exports"],
        }  # fmt: skip
        self.save()
        shell.rest = FakeRest()
        shell.env = {
            "HOME": str(self.home),
            "PATH": str(tmp_path / "bin"),
            "FAKE_CLOUD": str(self.state),
        }

    def save(self) -> None:
        self.state.write_text(json.dumps(self.cloud))

    def __call__(self, *words: str, stdin: str | None = None) -> Any:
        self.save()
        result = self.shell(*words, stdin=stdin)
        self.cloud = json.loads(self.state.read_text())
        return result

    def refuse(self, words: str, text: str, times: int = 1) -> None:
        self.cloud["refuse"][words] = {"text": text, "times": times}

    def calls(self, words: str) -> int:
        return sum(words in line for line in self.cloud["calls"])

    def installed(self) -> None:
        assert self("init", "--project", PROJECT, "--yes").exit_code == 0
        self.cloud["calls"] = []


@pytest.fixture
def desk(tmp_path: Path, lustrum: Shell, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    # A shell starts what it runs in the background deaf to Ctrl-C.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    found = Desk(tmp_path, lustrum)
    monkeypatch.chdir(found.root)
    monkeypatch.setattr(checks, "run", lambda options, console: console.print("ready") or 0)
    yield found
    signal.signal(signal.SIGINT, before)


class TestInit:
    def test_init_leads_from_an_empty_project_to_doctor(self, desk: Desk) -> None:
        desk.shell.env["LUSTRUM_HF_TOKEN"] = TOKEN
        result = desk("init", "--project", PROJECT, "--yes", "--alert-email", "me@example.com")
        assert result.exit_code == 0, result.output
        assert result.stdout.splitlines()[-1] == "ready"
        assert desk.cloud["vars"] == {
            "project": PROJECT,
            "region": "us-central1",
            "alert_email": "me@example.com",
            "gcluster_sha256": DIGEST,
            "secrets": ["LUSTRUM_HF_TOKEN"],
            "submitters": ["user:me@example.com"],
        }
        assert desk.cloud["secrets"] == {TOKENS["LUSTRUM_HF_TOKEN"]: TOKEN}

    def test_no_secret_is_printed_logged_or_an_argument(self, desk: Desk) -> None:
        desk.shell.env["LUSTRUM_HF_TOKEN"] = TOKEN
        result = desk("init", "--project", PROJECT, "--yes")
        written = "".join(path.read_text() for path in desk.home.rglob("*") if path.is_file())
        for secret in (TOKEN, "ya29.secret"):
            assert secret not in result.output + written + "\n".join(desk.cloud["calls"])
        [log] = desk.home.rglob("init.log")
        assert stat.S_IMODE(log.stat().st_mode) == 0o600

    def test_a_token_is_asked_for_and_not_echoed(self, desk: Desk) -> None:
        result = desk("init", "--project", PROJECT, stdin=f"{TOKEN}\n\n")
        assert result.exit_code == 0 and TOKEN not in result.output
        assert desk.cloud["secrets"] == {TOKENS["LUSTRUM_HF_TOKEN"]: TOKEN}

    def test_every_later_command_finds_the_environment(self, desk: Desk) -> None:
        desk.installed()
        assert desk.shell("list").exit_code == 0
        desk.shell.env["LUSTRUM_PROJECT"] = "other-project"  # the file is of another: left alone
        assert "LUSTRUM_REGION" in desk.shell("list").stderr

    def test_after_ctrl_c_it_goes_on_where_it_stopped(self, desk: Desk) -> None:
        desk.refuse("chdir=infra/terraform apply", "Ctrl-C")
        assert desk("init", "--project", PROJECT, "--yes").exit_code == 130
        assert desk.cloud["stored"], "Terraform was told, and its end awaited"
        assert desk("init", "--project", PROJECT, "--yes").exit_code == 0
        assert (
            desk.calls("bootstrap apply") == 1 and desk.calls("chdir=infra/terraform apply") == 2
        )

    def test_other_choices_repeat_what_was_done(self, desk: Desk) -> None:
        desk.refuse("chdir=infra/terraform apply", "Error: no")
        assert desk("init", "--project", PROJECT, "--yes").exit_code == 1
        desk.cloud["region"] = "europe-west1"
        desk("init", "--project", PROJECT, "--yes", "--region", "europe-west1")
        assert desk.calls("bootstrap apply") == 2
        desk("init", "--project", PROJECT, "--yes")  # and the region stays, unless told
        assert desk.cloud["vars"]["region"] == "europe-west1"

    @pytest.mark.parametrize(
        ("key", "value", "fix"),
        (
            ("billing", "False", f"gcloud billing projects link {PROJECT}"),
            ("terraform", "1.5.7", "Terraform >= 1.9"),
        ),
    )
    def test_what_is_missing_stops_it_before_anything_is_made(
        self, desk: Desk, key: str, value: str, fix: str
    ) -> None:
        desk.cloud[key] = value
        result = desk("init", "--project", PROJECT, "--yes")
        assert result.exit_code == 1 and fix in result.stdout
        assert not desk.calls("enable") and not desk.calls("apply")

    def test_a_missing_permission_has_its_command(self, desk: Desk) -> None:
        desk.shell.rest.held.discard("pubsub.topics.setIamPolicy")
        result = desk("init", "--project", PROJECT, "--yes")
        assert result.exit_code == 1 and not desk.calls("apply")
        assert "--member=user:me@example.com --role=roles/pubsub.admin" in result.stdout

    def test_a_fresh_project_is_waited_for(self, desk: Desk) -> None:
        desk.refuse("chdir=infra/terraform apply", "Error 403: SERVICE_DISABLED", times=2)
        assert desk("init", "--project", PROJECT, "--yes").exit_code == 0
        assert desk.shell.slept == [60, 60]

    def test_another_refusal_is_not_waited_for(self, desk: Desk) -> None:
        desk.refuse("chdir=infra/terraform apply", "Error 403: forbidden", times=2)
        assert desk("init", "--project", PROJECT, "--yes").exit_code == 1
        assert desk.shell.slept == []

    def test_a_file_of_another_project_is_not_used(self, desk: Desk) -> None:
        (desk.root / "infra/terraform/terraform.tfvars").write_text('project = "other"\n')
        assert desk("init", "--project", PROJECT, "--yes").exit_code == 1
        assert not desk.calls("apply")

    def test_a_dry_run_prints_the_commands_and_runs_none(self, desk: Desk) -> None:
        result = desk("init", "--project", PROJECT, "--dry-run")
        assert "terraform -chdir=infra/terraform apply" in result.stdout
        assert desk.cloud["calls"] == [] and not desk.home.exists()


def change(kind: str, *actions: str) -> dict[str, Any]:
    return {"type": kind, "address": f"{kind}.x", "change": {"actions": list(actions)}}


class TestUpgrade:
    def test_it_shows_what_changes_and_who_stays(self, desk: Desk) -> None:
        desk.installed()
        desk.cloud["changes"] = [change("google_cloudfunctions2_function", "update")] * 2
        run = records.new_run()
        desk.shell.ledger.create(run)
        result = desk("upgrade", stdin="y\n")
        assert result.exit_code == 0, result.output
        assert "update     2 x google_cloudfunctions2_function" in result.stdout
        assert f"{run.run_id} is" in result.stdout and desk.cloud["applied"]

    def test_no_answer_applies_nothing(self, desk: Desk) -> None:
        desk.installed()
        desk.cloud["changes"] = [change("google_pubsub_topic", "create")]
        assert desk("upgrade", stdin="n\n").exit_code == 1
        assert "applied" not in desk.cloud

    def test_what_holds_data_is_not_replaced_even_with_yes(self, desk: Desk) -> None:
        desk.installed()
        desk.cloud["changes"] = [change("google_storage_bucket", "delete", "create")]
        result = desk("upgrade", "--yes")
        assert result.exit_code == 1 and "google_storage_bucket.x" in result.stdout
        assert "applied" not in desk.cloud

    def test_another_toolkit_gets_its_own_digest(self, desk: Desk) -> None:
        """Review M5: the old digest would refuse every build, destroys among them."""
        desk.installed()
        pins = desk.root / "infra/blueprint/steps/versions.sh"
        pins.write_text("GCLUSTER_VERSION=v1.96.0\n")
        result = desk("upgrade", "--yes")
        assert result.exit_code == 1 and "v1.96.0" in result.stdout
        assert not desk.cloud["planned"]


class TestUninstall:
    def test_it_refuses_while_a_run_lives(self, desk: Desk) -> None:
        desk.installed()
        desk.shell.ledger.create(records.new_run())
        result = desk("uninstall", "--yes")
        assert result.exit_code == 1 and "lustrum cancel" in result.stdout
        assert not desk.calls("destroy")

    def test_it_refuses_while_a_cluster_is_left(self, desk: Desk) -> None:
        desk.installed()
        desk.cloud["left"] = {"container clusters": ["rl-0123456789"]}
        result = desk("uninstall", "--yes")
        assert result.exit_code == 1 and "rl-0123456789" in result.stdout
        assert not desk.calls("destroy")

    def test_the_name_must_be_typed(self, desk: Desk) -> None:
        desk.installed()
        assert desk("uninstall", stdin="y\n").exit_code == 2
        assert not desk.calls("destroy")

    def test_data_stays_unless_asked_for(self, desk: Desk) -> None:
        desk.installed()
        result = desk("uninstall", "--yes")
        assert result.exit_code == 0, result.output
        assert "only your data is left" in result.stdout and desk.cloud["bootstrap"]
        assert not (desk.home / ".config/lustrum/env.json").exists()

    def test_a_destroy_that_failed_elsewhere_is_no_success(self, desk: Desk) -> None:
        desk.installed()
        desk.cloud["state"].append("google_compute_network.this")
        result = desk("uninstall", "--yes")
        assert result.exit_code == 1 and "force_destroy" in result.stdout

    def test_with_data_nothing_is_left_also_after_ctrl_c(self, desk: Desk) -> None:
        desk.installed()
        desk.refuse("chdir=infra/terraform destroy", "Ctrl-C")
        assert desk("uninstall", "--data", "--yes").exit_code == 130
        result = desk("uninstall", "--data", "--yes")
        assert result.exit_code == 0, result.output
        assert "nothing is left" in result.stdout and not desk.cloud["bootstrap"]
        assert desk.calls("apply") == 1, "what was done before Ctrl-C is not done again"


class TestRules:
    def test_only_data_is_data(self) -> None:
        assert is_data_alone('google_storage_bucket.state\ngoogle_project_service.api["x"]\n')
        assert not is_data_alone("google_storage_bucket.source")

    def test_a_fresh_project_is_told_from_a_lack_of_rights(self) -> None:
        assert is_fresh_project("API has not been used in project 1 before or it is disabled")
        assert not is_fresh_project("Permission iam.roles.create denied")

    def test_summary_puts_the_worst_first(self) -> None:
        found = summary(
            {
                "resource_changes": [
                    change("a", "create"),
                    change("b", "no-op"),
                    change("c", "delete"),
                ]
            }
        )
        assert [row[0] for row in found] == ["delete", "create"]
