"""The blueprint's Roles on a real API server: what each function may do, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from testing.cluster.api import Api, ApiError
from testing.cluster.functions import account, accounts, blueprint_rights, install_roles
from testing.cluster.harness import STRANGER, ControlPlane

RUN = "rl-0123456789"
OTHER = "rl-fedcba9876"
HEAD = f"/api/v1/namespaces/default/services/http:{RUN}-head-svc:8265/proxy"

# (method, path): what somebody who holds a function's token might try.
FORBIDDEN = [
    ("GET", "/api/v1/namespaces/default/secrets"),
    ("GET", "/api/v1/namespaces/default/secrets/somebody-elses"),
    ("PATCH", "/api/v1/namespaces/default/secrets/somebody-elses"),
    ("DELETE", "/api/v1/namespaces/default/secrets/lustrum-tokens"),
    ("GET", "/api/v1/secrets"),
    ("GET", "/api/v1/nodes"),
    ("GET", "/api/v1/namespaces/kube-system/pods"),
    ("POST", "/api/v1/namespaces/default/pods"),
    ("DELETE", "/api/v1/namespaces/default/pods/any"),
    ("POST", "/api/v1/namespaces/default/pods/any/exec"),
    ("GET", "/api/v1/namespaces/default/pods/any/log"),
    ("POST", "/api/v1/namespaces/default/serviceaccounts/lustrum-job/token"),
    ("POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings"),
    ("PATCH", "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles/lustrum-job"),
    ("POST", "/apis/batch/v1/namespaces/default/jobs"),
    ("GET", f"/api/v1/namespaces/default/services/http:{OTHER}-head-svc:8265/proxy/api/version"),
    ("GET", f"/api/v1/namespaces/default/services/http:{RUN}-head-svc:6379/proxy/"),
    ("GET", "/api/v1/namespaces/default/services/https:kubernetes:443/proxy/"),
    ("DELETE", f"{HEAD}/api/jobs/any"),  # a job's record is evidence
]


@pytest.fixture(scope="module")
def roles(api: Api) -> dict[str, list[dict[str, Any]]]:
    """The Roles of one run, installed; user name -> its rules."""
    install_roles(api, RUN)
    found = blueprint_rights(RUN)
    rules = {one["metadata"]["name"]: one["rules"] for one in found if one["kind"] == "Role"}
    return {
        subject["name"]: rules[one["roleRef"]["name"]]
        for one in found
        if one["kind"] == "RoleBinding"
        for subject in one["subjects"]
    }


class TestRights:
    @pytest.mark.parametrize("user", [*accounts(), STRANGER])
    def test_what_no_function_may_do_is_forbidden(
        self, plane: ControlPlane, roles: dict[str, Any], user: str
    ) -> None:
        api = plane.api(user)
        allowed = []
        for method, path in FORBIDDEN:
            content = "{}" if method in ("POST", "PATCH") else None
            kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
            answer = api.http.request(
                method, path, content=content, headers={"Content-Type": kind}
            )
            if answer.status_code != 403:
                allowed.append((method, path, answer.status_code))
        assert allowed == []

    @pytest.mark.parametrize("user", accounts())
    def test_rules_of_a_function_are_those_of_the_blueprint(
        self, plane: ControlPlane, roles: dict[str, Any], user: str
    ) -> None:
        assert set(roles) <= set(accounts()), "a Role is bound to no function of ours"
        common = _rules(plane.api(STRANGER))  # what everybody may: ask about himself
        extra = [rule for rule in _rules(plane.api(user)) if rule not in common]
        assert _flat(extra) == _flat(roles.get(user, []))

    def test_a_head_of_the_own_run_is_reached_by_the_exact_name_alone(
        self, plane: ControlPlane, roles: dict[str, Any]
    ) -> None:
        api = plane.api(account("submit-ray-job"))
        # There is no such service yet: allowed means "not found", not "forbidden".
        assert _status(api, "POST", f"{HEAD}/api/jobs/") == 404
        assert _status(api, "GET", f"{HEAD}/api/version") == 404
        bare = HEAD.replace("http:", "")
        assert _status(api, "GET", f"{bare}/api/version") == 403


def _status(api: Api, method: str, path: str) -> int:
    try:
        api.request(method, path)
    except ApiError as error:
        return error.status
    return 200


def _rules(api: Api, namespace: str = "default") -> list[dict[str, Any]]:
    answer = api.request(
        "POST",
        "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
        json={
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectRulesReview",
            "spec": {"namespace": namespace},
        },
    )
    rules: list[dict[str, Any]] = answer["status"]["resourceRules"]
    return rules


def _flat(rules: list[dict[str, Any]]) -> set[tuple[str, str, str, str]]:
    """Each (group, resource, name or "", verb) that rules allow."""
    return {
        (group, resource, name, verb)
        for rule in rules
        for group in rule.get("apiGroups", [""])
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
        for verb in rule["verbs"]
    }
