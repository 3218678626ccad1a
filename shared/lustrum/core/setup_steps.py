"""What `lustrum init`, `upgrade` and `uninstall` do, step by step, as values. Pure.

Every step is a list of commands a person could type; `lustrum.cli.setup` runs them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

TERRAFORM, BOOTSTRAP = "infra/terraform", "infra/terraform/bootstrap"
PLAN_FILE = "lustrum.tfplan"
TOKENS: Mapping[str, str] = {  # variable of the function -> secret that bootstrap makes
    "LUSTRUM_HF_TOKEN": "lustrum-hf-token",
    "LUSTRUM_WANDB_API_KEY": "lustrum-wandb-api-key",
}
OLDEST_TERRAFORM = (1, 9)
# Where Cloud Build admits new projects (cloud.google.com/build/docs/locations).
BUILD_REGIONS = (
    "us-central1",
    "us-west2",
    "europe-west1",
    "asia-east1",
    "australia-southeast1",
    "southamerica-east1",
)
# One right of each kind of policy or resource that the control plane's Terraform writes, and the
# role that brings it to an editor.
RIGHTS: Mapping[str, str] = {
    "resourcemanager.projects.setIamPolicy": "roles/resourcemanager.projectIamAdmin",
    "iam.roles.create": "roles/iam.roleAdmin",
    "iam.serviceAccounts.setIamPolicy": "roles/iam.serviceAccountAdmin",
    "pubsub.topics.setIamPolicy": "roles/pubsub.admin",
    "run.services.setIamPolicy": "roles/run.admin",
    "artifactregistry.repositories.setIamPolicy": "roles/artifactregistry.admin",
    "secretmanager.secrets.setIamPolicy": "roles/secretmanager.admin",
    "compute.networks.create": "roles/compute.networkAdmin",
    "serviceusage.services.enable": "roles/editor",
    "cloudfunctions.functions.create": "roles/editor",
    "workflows.workflows.create": "roles/editor",
}
# What a project says of things that were enabled or created seconds ago. It passes.
_FRESH = re.compile(
    r"API has not been used|SERVICE_DISABLED|service account \S+ does not exist"
    r"|service account \S+ was not found|high error rate in some projects"
    r"|permissions? .{0,200}may not exist yet",
    re.IGNORECASE,
)
# Data that an uninstall without --data leaves, and what Terraform keeps because these need it.
_KEPT = re.compile(
    r"(google_storage_bucket\.(state|exports|reports)|google_project_service\.api\[.*\]"
    r"|data\..*)"
)


@dataclass(frozen=True)
class Choices:
    """What the person chose."""

    project: str
    region: str
    submitter: str = ""  # IAM member who may start runs
    alert_email: str = ""
    gcluster_sha256: str = ""
    secrets: tuple[str, ...] = ()

    def fingerprint(self, version: str) -> str:
        """Return a hash of the choices and the release: steps done for others are done again."""
        told = json.dumps([version, self.project, self.region], sort_keys=True)
        return hashlib.sha256(told.encode()).hexdigest()[:16]

    def settings(self, before: Mapping[str, Any]) -> dict[str, Any]:
        """Return terraform.tfvars.json: what was chosen now over what was there before."""
        told = {key: value for key, value in asdict(self).items() if value}
        submitter = told.pop("submitter", "")
        submitters = {*before.get("submitters", []), *([submitter] if submitter else [])}
        return {**before, **told, "submitters": sorted(submitters)}


@dataclass(frozen=True)
class Command:
    """A program's arguments. ``tries`` is for refusals that pass; ``private``: prints a secret."""

    argv: tuple[str, ...]
    tries: int = 1
    private: bool = False
    secret: str = ""  # name of the token it reads from standard input


@dataclass(frozen=True)
class Step:
    """A step. One that is ``once`` is not repeated by a run that goes on after Ctrl-C."""

    name: str
    about: str
    commands: tuple[Command, ...] = ()
    once: bool = False
    fix: str = ""
    expects: Sequence[str] = field(default=())  # last command's output: any of these


def command(text: str, *more: str, **options: Any) -> Command:
    """Return a command from words without spaces, and further arguments that may have some."""
    return Command((*text.split(), *more), **options)


def _terraform(folder: str, text: str, **options: Any) -> Command:
    return command(f"terraform -chdir={folder} {text}", **options)


def init_steps(c: Choices) -> tuple[Step, ...]:
    """Return the steps from an empty project to a checked control plane."""
    p = c.project
    return (
        Step(
            "tools",
            "gcloud and Terraform",
            (command("gcloud --version"), command("terraform version -json")),
            fix="install gcloud (cloud.google.com/sdk/docs/install) and Terraform >= 1.9",
        ),
        Step(
            "account",
            "gcloud knows who you are",
            (command("gcloud auth list --filter=status:ACTIVE --format=value(account)"),),
            fix="gcloud auth login",
        ),
        Step(
            "credentials",
            "Terraform and lustrum may act as you",
            (command("gcloud auth application-default print-access-token", private=True),),
            fix="gcloud auth application-default login",
        ),
        Step(
            "project",
            f"{p} exists",
            (command(f"gcloud projects describe {p} --format=value(lifecycleState)"),),
            fix=f"gcloud projects create {p}",
            expects=("ACTIVE",),
        ),
        Step(
            "billing",
            "an open billing account pays for it",
            (command(f"gcloud billing projects describe {p} --format=value(billingEnabled)"),),
            fix=f"gcloud billing projects link {p} --billing-account=ACCOUNT_ID",
            expects=("True",),
        ),
        Step(
            "first services",
            "the two through which Terraform reads",
            (
                command(
                    "gcloud services enable cloudresourcemanager.googleapis.com"
                    f" serviceusage.googleapis.com --project={p}"
                ),
                command(f"gcloud auth application-default set-quota-project {p}"),
            ),
            once=True,
        ),
        Step("permissions", "you hold what the control plane's Terraform needs"),
        Step("settings", f"{TERRAFORM}/terraform.tfvars.json"),
        Step(
            "bootstrap",
            "state bucket, empty secrets",
            (
                _terraform(BOOTSTRAP, "init -input=false -no-color"),
                _terraform(
                    BOOTSTRAP,
                    f"apply -input=false -no-color -auto-approve -var project={p}"
                    f" -var region={c.region}",
                    tries=3,
                ),
            ),
            once=True,
        ),
        Step("tokens", "into Secret Manager, never through Terraform", once=True),
        Step(
            "stage", "functions laid out in build/functions", (command("python -m infra.staging"),)
        ),
        Step(
            "control plane",
            "everything that lives between runs, 10 to 15 minutes",
            (
                backend(p),
                _terraform(TERRAFORM, "apply -input=false -no-color -auto-approve", tries=3),
            ),
            once=True,
        ),
        environment_step(),
        Step("doctor", "would a first run get through?"),
    )


def backend(project: str) -> Command:
    """Return the command that ties the control plane's Terraform to its state."""
    return _terraform(
        TERRAFORM,
        f"init -input=false -no-color -reconfigure -backend-config=bucket={project}-lustrum-tf",
    )


def environment_step() -> Step:
    """Return the step whose output every later command finds."""
    return Step(
        "environment",
        "the file that every later command reads",
        (_terraform(TERRAFORM, "output -json environment"),),
    )


def token_commands(project: str, secret: str, variable: str) -> tuple[Command, Command]:
    """Return the command that looks for a token's value, and the one that takes it from stdin."""
    return (
        command(
            f"gcloud secrets versions list {secret} --project={project}"
            " --filter=state=ENABLED --limit=1 --format=value(name)"
        ),
        command(
            f"gcloud secrets versions add {secret} --project={project} --data-file=-",
            secret=variable,
        ),
    )


def upgrade_steps(project: str) -> tuple[Step, ...]:
    """Return the steps of an upgrade up to what a person has to agree with."""
    return (
        Step("settings", "the digest of the toolkit that this release pins"),
        Step("stage", "functions of this release", (command("python -m infra.staging"),)),
        Step(
            "plan",
            "what would change",
            (
                backend(project),
                _terraform(TERRAFORM, f"plan -input=false -no-color -out={PLAN_FILE}"),
                _terraform(TERRAFORM, f"show -json {PLAN_FILE}"),
            ),
        ),
    )


def apply_plan() -> Step:
    """Return the step that applies exactly the plan that was shown."""
    apply = _terraform(TERRAFORM, f"apply -input=false -no-color {PLAN_FILE}")
    return Step("apply", "the plan shown above, and nothing else", (apply,))


def leftovers(project: str) -> tuple[Step, ...]:
    """Return the looks for what runs or the control plane left; any output is a leftover."""
    listed = f"--project={project} --format=value(name)"
    looks = {
        "clusters": f"gcloud container clusters list --filter=resourceLabels.managed-by=lustrum"
        f" {listed}",
        "Lustre instances": "gcloud lustre instances list --location=-"
        f" --filter=labels.managed-by=lustrum {listed}",
        "functions": f"gcloud functions list {listed}",
        "networks": f"gcloud compute networks list --filter=name=lustrum {listed}",
        "secrets": f"gcloud secrets list --filter=labels.managed-by=lustrum {listed}",
        "buckets": f"gcloud storage buckets list --filter=name~^{project}-lustrum- {listed}",
    }
    return tuple(Step(name, "", (command(text),)) for name, text in looks.items())


LIVE = ("clusters", "Lustre instances")  # what a run alone makes


def uninstall_steps(project: str, region: str, data: bool) -> tuple[Step, ...]:
    """Return the steps back to nothing, or to the data alone."""
    extra = " -var destroy_data=true" if data else ""
    destroy = _terraform(TERRAFORM, f"destroy -input=false -no-color -auto-approve{extra}")
    steps = [
        Step("stage", "Terraform reads what it deployed", (command("python -m infra.staging"),)),
        Step("backend", "the control plane's state", (backend(project),)),
    ]
    if data:
        allow = _terraform(TERRAFORM, f"apply -input=false -no-color -auto-approve{extra}")
        steps.append(Step("release data", "buckets may be emptied", (allow,), once=True))
    steps.append(Step("destroy", "the control plane", (destroy,), once=True))
    if data:
        bucket = f"gs://{project}-lustrum-tf/**"
        boot = (
            f"destroy -input=false -no-color -auto-approve -var project={project}"
            f" -var region={region}"
        )
        steps += [
            Step(
                "state",
                "Terraform's own, with its older versions",
                (command(f"gcloud storage rm --recursive {bucket}"),),
                once=True,
            ),
            Step(
                "bootstrap",
                "state bucket and secrets",
                (
                    _terraform(BOOTSTRAP, "init -input=false -no-color"),
                    _terraform(BOOTSTRAP, boot),
                ),
                once=True,
            ),
        ]
    return tuple(steps)


def is_data_alone(state_list: str) -> bool:
    """Say whether all that `terraform state list` names is what an uninstall keeps."""
    return all(_KEPT.fullmatch(line.strip()) for line in state_list.splitlines() if line.strip())


def is_fresh_project(text: str) -> bool:
    """Say whether a refusal is that of a project in its first minutes."""
    return _FRESH.search(text) is not None


def complaint(step: Step, outputs: Sequence[str]) -> str:
    """Say what is wrong with what the commands of a check answered, "" if nothing."""
    if step.name == "tools":
        found = str(json.loads(outputs[-1]).get("terraform_version", "0"))
        numbers = tuple(int(one) for one in re.findall(r"\d+", found)[:2])
        return "" if numbers >= OLDEST_TERRAFORM else f"Terraform {found} is older than 1.9"
    last = outputs[-1].strip() if outputs else ""
    if step.expects and last not in step.expects:
        return f"not so: gcloud answered {last or 'nothing'}, wanted {' or '.join(step.expects)}"
    if step.name in ("account", "credentials") and not last:
        return "nobody is signed in"
    return ""


def missing_rights(held: set[str]) -> list[str]:
    """Return the roles that would bring the rights that are not held."""
    return sorted({role for right, role in RIGHTS.items() if right not in held})


def summary(plan: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return (what happens, type, name) of each change in `terraform show -json`, worst first."""
    words = {("delete",): "delete", ("create",): "create", ("update",): "update"}
    found = []
    for one in plan.get("resource_changes", []):
        actions = tuple(one["change"]["actions"])
        if actions in (("no-op",), ("read",)):
            continue
        found.append((words.get(actions, "replace"), str(one["type"]), str(one["address"])))
    order = ("delete", "replace", "update", "create")
    return sorted(found, key=lambda row: (order.index(row[0]), row[1], row[2]))


# Their loss is a loss of data, or of runs under way.
PRECIOUS = (
    "google_firestore_database",
    "google_storage_bucket",
    "google_compute_network",
    "google_compute_subnetwork",
    "google_workflows_workflow",
)


def losses(changes: Sequence[tuple[str, str, str]]) -> list[str]:
    """Return the addresses of what a plan would destroy and nothing brings back."""
    return [
        name for what, kind, name in changes if what in ("delete", "replace") and kind in PRECIOUS
    ]
