"""Who may do what: least privilege, nobody in public, nothing that dies with a run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from .configuration import BOOTSTRAP, ROOT, TERRAFORM, local_values, resources, text, variables

# Roles that hold most of a project, whatever they are called.
FORBIDDEN = re.compile(
    r"roles/(owner|editor|viewer|\w+\.serviceAgent"
    r"|resourcemanager\.\w*[aA]dmin|iam\.(securityAdmin|serviceAccountAdmin|serviceAccountKeyAdmin)"
    r"|iam\.serviceAccountTokenCreator|storage\.admin|compute\.admin|pubsub\.(admin|editor)"
    r"|run\.(admin|developer)|cloudbuild\.\w+|secretmanager\.admin|datastore\.owner)$"
)


def grants() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every IAM grant with its address."""
    for kind, named in resources().items():
        if "_iam_" in kind and not kind.endswith("custom_role"):
            for name, body in named.items():
                yield f"{kind}.{name}", body


def roles(body: dict[str, Any]) -> list[str]:
    """Return the roles of a grant; a ``toset`` of roles is read from its text."""
    found = [body["role"], str(body.get("for_each", ""))]
    return re.findall(r"roles/[\w.]+", " ".join(found))


class TestGrants:
    @pytest.mark.parametrize(("address", "body"), list(grants()))
    def test_no_account_holds_a_primitive_or_project_wide_role(
        self, address: str, body: dict[str, Any]
    ) -> None:
        assert not [role for role in roles(body) if FORBIDDEN.search(role)], address

    def test_nothing_is_public(self) -> None:
        for folder in (TERRAFORM, BOOTSTRAP):
            # the variable's message may say the words; a member may not be them
            assert not re.search(r"member\w*\s*=.*all(Authenticated)?Users", text(folder))

    def test_grants_add_to_policies_and_never_replace_them(self) -> None:
        kinds = {kind for kind in resources() if "_iam_" in kind}
        assert not [k for k in kinds if k.endswith(("_iam_policy", "_iam_binding"))]

    def test_submitters_cannot_be_the_public(self) -> None:
        (rule,) = variables()["submitters"]["validation"]
        pattern = re.search(r'regex\("([^"]+)"', rule["condition"].replace('\\"', '"'))
        assert pattern is not None
        accepted = re.compile(pattern.group(1))
        assert accepted.match("group:rl@example.com")
        assert not accepted.match("allUsers")
        assert not accepted.match("allAuthenticatedUsers")

    def test_tokens_are_readable_by_one_function_only(self) -> None:
        accessors = {
            address: body["member"] for address, body in grants() if "secret_manager" in address
        }
        assert list(accessors.values()) == [
            '${google_service_account.account["apply-ray-cluster"].member}'
        ]
        (service,) = resources()["google_cloudfunctions2_function"]["function"]["service_config"]
        assert 'each.key == "apply_ray_cluster"' in str(service["dynamic"])

    def test_no_key_of_any_account_is_made(self) -> None:
        assert "google_service_account_key" not in resources()


class TestInvokers:
    def test_only_invoker_grants_reach_a_function(self) -> None:
        run = [a for a, body in grants() if any("run." in role for role in roles(body))]
        assert run == ["google_cloud_run_v2_service_iam_member.invoker"]

    def test_each_function_has_exactly_the_callers_of_the_architecture(self) -> None:
        called: dict[str, set[str]] = {}
        for account, functions in local_values()["callers"].items():
            for function in functions:
                called.setdefault(function, set()).add(account)
        assert set(called) == set(local_values()["functions"])
        assert called["start_run"] == {"push-requests"}
        assert called["react_to_event"] == {"push-events"}
        assert called["reap_runs"] == {"scheduler"}

    @pytest.mark.parametrize(
        ("workflow", "account"), [("rl_run", "rl-run"), ("teardown", "teardown")]
    )
    def test_workflow_may_call_what_it_calls(self, workflow: str, account: str) -> None:
        source = (ROOT / "workflows" / f"{workflow}.yaml").read_text()
        functions = {name.replace("_", "-"): name for name in local_values()["functions"]}
        called = {
            f for url, f in functions.items() if re.search(rf"(?<![\w-]){url}(?![\w-])", source)
        }
        assert called, "the pattern found no call at all"
        assert called <= set(local_values()["callers"][account])


class TestAccounts:
    def test_account_ids_fit_googles_limit(self) -> None:
        names = [name.replace("_", "-") for name in local_values()["functions"]]
        others = re.findall(r"([\w-]+) = \"", local_values()["accounts"])
        assert "function-builder" in others
        for name in names + others:
            assert len(f"lustrum-{name}") <= 30

    def test_destroyer_shares_nothing_with_a_deployment(self) -> None:
        """Case A26: a destroy that deletes the account it runs as ends halfway."""
        trigger = resources()["google_cloudbuild_trigger"]["run"]
        assert trigger["service_account"] == '${google_service_account.account["build"].id}'
        for path in (ROOT / "infra" / "blueprint").rglob("*.yaml"):
            assert "modules/project/service-account" not in path.read_text(), path

    def test_build_cannot_touch_the_control_planes_state(self) -> None:
        mine = [
            body["bucket"]
            for address, body in grants()
            if "storage_bucket" in address and 'account["build"]' in body["member"]
        ]
        assert mine
        assert all("state.name" in bucket or "source.name" in bucket for bucket in mine)

    def test_lustre_agent_may_write_the_export_bucket(self) -> None:
        grant = resources()["google_storage_bucket_iam_member"]["lustre"]
        assert grant["bucket"] == "${google_storage_bucket.exports.name}"
        assert grant["role"] == "roles/storage.objectUser"
        assert grant["member"] == "${local.lustre_agent}"

    def test_job_publishes_events_and_reads_exports_and_nothing_else(self) -> None:
        job = {a: b for a, b in grants() if b["member"] == "${local.job}"}
        assert {(b["role"], b.get("topic") or b.get("bucket")) for b in job.values()} == {
            ("roles/pubsub.publisher", '${google_pubsub_topic.topic["events"].id}'),
            ("roles/storage.objectViewer", "${google_storage_bucket.exports.name}"),
        }
        assert local_values()["job"].endswith("/subject/ns/default/sa/lustrum-job")

    def test_roles_are_explained(self) -> None:
        page = (ROOT / "docs" / "security.md").read_text()
        for account in (*local_values()["callers"], "build", "node", "function-builder"):
            assert f"lustrum-{account}" in page
        for function in local_values()["functions"]:
            assert f"`{function}`" in page
        used = {role for _, body in grants() for role in roles(body)}
        assert used
        assert not [role for role in sorted(used) if role not in page]
