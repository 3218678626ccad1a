"""What `lustrum doctor` expects of a project is what Terraform makes."""

from __future__ import annotations

import re

from lustrum.doctor.expected_setup import (
    ACTS_AS,
    INVOKERS,
    NETWORK,
    NODE_QUOTAS,
    REGION_QUOTAS,
    ROLES,
    SECRETS,
    SERVICES,
    WORKFLOWS,
)

from .configuration import BOOTSTRAP, ROOT, local_values, resources


class TestTables:
    def test_services(self) -> None:
        assert set(local_values()["services"]) == SERVICES

    def test_callers(self) -> None:
        made: dict[str, set[str]] = {}
        for account, functions in local_values()["callers"].items():
            for function in functions:
                made.setdefault(function, set()).add(account)
        assert {name: set(accounts) for name, accounts in INVOKERS.items()} == made

    def test_roles_on_the_project(self) -> None:
        """Every grant on the project that is for one account, by that account."""
        made: dict[str, set[str]] = {}
        for grant in resources()["google_project_iam_member"].values():
            roles = set(re.findall(r"roles/[\w.]+", f"{grant['role']} {grant.get('for_each')}"))
            named = re.search(r"custom_role\.(\w+)(\[each)?", grant["role"])
            account = re.search(r'account\["([\w-]+)"\]', grant["member"])
            for name in [account.group(1)] if account else _accounts(grant):
                own = name.replace("-", "_") if named and named.group(2) else ""
                if named:
                    roles_of = {f"projects/{{project}}/roles/lustrum_{own or named.group(1)}"}
                else:
                    roles_of = roles
                made.setdefault(name, set()).update(roles_of)
        made.pop("submitter", None)
        assert {name: set(roles) for name, roles in ROLES.items()} == made

    def test_quotas_follow_the_blueprints_system_pool(self) -> None:
        blueprint = (ROOT / "infra" / "blueprint" / "rl-a4.yaml").read_text()
        machine = re.search(r"system_node_pool_machine_type: (\w+)-\w+-(\d+)", blueprint)
        disk = re.search(r"system_node_pool_disk_size_gb: (\d+)", blueprint)
        assert machine is not None and disk is not None
        family, cpus = machine.groups()
        assert REGION_QUOTAS[f"{family.upper()}_CPUS"][0] == int(cpus)
        assert REGION_QUOTAS["SSD_TOTAL_GB"][0] >= int(disk.group(1))

    def test_quotas_follow_the_blueprints_boot_disks(self) -> None:
        blueprint = (ROOT / "infra" / "blueprint" / "rl-a4.yaml").read_text()
        disk = re.search(r"^      disk_size_gb: (\d+)", blueprint, re.MULTILINE)
        assert disk is not None
        assert NODE_QUOTAS["HDB_TOTAL_GB"][0] == int(disk.group(1))
        assert 8 * int(disk.group(1)) <= 500, "8 nodes must fit into an ordinary project's quota"

    def test_who_acts_as_whom(self) -> None:
        made: dict[str, set[str]] = {}
        for grant in resources()["google_service_account_iam_member"].values():
            if "roles/iam.serviceAccountUser" not in grant["role"]:
                continue
            target = re.search(r'account\["([\w-]+)"\]', grant["service_account_id"])
            assert target is not None
            own = re.search(r'account\["([\w-]+)"\]', grant["member"])
            actors = [own.group(1)] if own else _accounts(grant)
            made.setdefault(target.group(1), set()).update(actors)
        assert {name: set(actors) for name, actors in ACTS_AS.items()} == made

    def test_kubernetes_role_is_bound_to_every_account_that_may_connect(self) -> None:
        """The blueprint's Role names the accounts; a function without either cannot work."""
        roles = (ROOT / "infra" / "blueprint" / "roles.yaml.tftpl").read_text()
        functions = {name.replace("_", "-") for name in INVOKERS}
        bound = {name for name in functions if f"lustrum-{name}@" in roles}
        connects = {
            name.replace("_", "-")
            for name, function in local_values()["functions"].items()
            if "local.kubernetes" in str(function["rights"])
        }
        assert connects
        assert connects == bound

    def test_secrets_workflows_and_network(self) -> None:
        assert set(SECRETS) == set(local_values(BOOTSTRAP)["secrets"])
        assert set(WORKFLOWS) == set(local_values()["workflow_names"].values())
        assert resources()["google_compute_network"]["this"]["name"] == NETWORK


def _accounts(grant: dict[str, str]) -> list[str]:
    """Return the accounts of a grant that is made for each function, workflow or submitter."""
    each = grant["for_each"]
    if each == "${local.functions}":
        return [name.replace("_", "-") for name in local_values()["functions"]]
    if each == "${var.submitters}":
        return ["submitter"]
    return re.findall(r'"([\w-]+)"', each)


class TestOutputs:
    def test_every_output_that_a_text_names_exists(self) -> None:
        made = set(
            re.findall(r'^output "(\w+)"', (ROOT / "infra/terraform/outputs.tf").read_text(), re.M)
        )
        texts = [*(ROOT / "shared" / "lustrum").rglob("*.py"), ROOT / "docs" / "deploy.md"]
        named = {
            name
            for path in texts
            for name in re.findall(r"output -(?:json|raw) (\w+)", path.read_text())
        }
        assert {"environment", "shell"} <= named
        assert named <= made
