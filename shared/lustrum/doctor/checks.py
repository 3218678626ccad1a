"""`lustrum doctor`: would a first run get through? Pure checks over what a project answers.

Each check prints one line; a failed one prints how to fix it. Nothing is created or changed.
What the control plane must look like is in `lustrum.doctor.expected_setup`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict

from rich.console import Console

from lustrum.core import names
from lustrum.core.errors import NotFound, ServiceError
from lustrum.core.failures import Failure
from lustrum.doctor import quotas
from lustrum.doctor.expected_setup import (
    ACTS_AS,
    INVOKERS,
    LUSTRE_WRITERS,
    NETWORK,
    PEERING,
    ROLES,
    SECRETS,
    SERVICES,
    WORKFLOWS,
    lustre_agent,
    lustre_grant,
    zone_lacks,
)
from lustrum.doctor.findings import TERRAFORM, Finding, Level, Options, finding, lines

PUBLIC = frozenset({"allUsers", "allAuthenticatedUsers"})


def run(options: Options, console: Console) -> int:
    """Examine, print, and return 1 if anything fails, else 0."""
    findings = list(examine(options))
    if options.as_json:
        console.print_json(json.dumps([asdict(finding) for finding in findings]))
    else:
        for line in lines(findings):
            console.print(line, soft_wrap=True)
    failed = sum(finding.level is Level.FAIL for finding in findings)
    if not options.as_json:
        console.print(
            f"[red]{failed} problem{'s' * (failed != 1)} to fix before a first run[/]"
            if failed
            else "[green]ready[/]"
        )
    return 1 if failed else 0


def examine(options: Options) -> Iterator[Finding]:
    """Yield every finding. A check that cannot be made is a failure, never an 'ok'."""
    for name, check in CHECKS.items():
        try:
            yield from check(options)
        except ServiceError as error:
            yield Finding(name, Level.FAIL, f"could not be checked: {error}", _way_in(error))


def _way_in(error: ServiceError) -> str:
    if error.failure is Failure.ACCESS:
        return (
            "enable the service if it says so; else ask for roles/viewer and"
            " roles/iam.securityReviewer on the project"
        )
    if isinstance(error, NotFound):
        return TERRAFORM
    return "try again" if error.retryable else "check --project and --region"


def _services(o: Options) -> Iterator[Finding]:
    missing = sorted(SERVICES - o.probes.enabled_services())
    yield finding(
        "services",
        not missing,
        f"{len(SERVICES)} services enabled",
        f"not enabled: {', '.join(missing)}",
        f"gcloud services enable {' '.join(missing)} --project={o.project}",
    )


def _control_plane(o: Options) -> Iterator[Finding]:
    for what, wanted, found in (
        ("functions", [name.replace("_", "-") for name in INVOKERS], o.probes.functions(o.region)),
        ("workflows", list(WORKFLOWS), o.probes.workflows(o.region)),
        ("build", ["lustrum-build"], dict.fromkeys(o.probes.triggers(o.region), "ACTIVE")),
    ):
        bad = [
            f"{name}: {found.get(name, 'missing')}"
            for name in wanted
            if found.get(name) != "ACTIVE"
        ]
        yield finding(
            what, not bad, f"{len(wanted)} deployed in {o.region}", ", ".join(bad), TERRAFORM
        )
    state = o.probes.peerings(NETWORK).get(PEERING, "missing")
    yield finding(
        "network",
        state == "ACTIVE",
        "network lustrum is peered with the services' network (Lustre)",
        f"peering {PEERING}: {state}",
        TERRAFORM,
    )


def _zones(o: Options) -> Iterator[Finding]:
    machines, lustre = o.probes.machine_zones(o.plan.machine), o.probes.lustre_zones()
    both = sorted(machines & lustre)
    for zone in o.plan.zones:
        lacks = zone_lacks(zone, {o.plan.machine: machines, "Managed Lustre": lustre})
        yield finding(
            f"zone {zone}",
            not lacks,
            f"offers {o.plan.machine} and Managed Lustre",
            lacks,
            f"zones with both: {', '.join(both) or 'none'}; name them in the request (zones)",
        )


def _identities(o: Options) -> Iterator[Finding]:
    held = o.probes.project_bindings()
    whole = True
    for account, roles in ROLES.items():
        member = f"serviceAccount:{_email(o.project, account)}"
        lacks = sorted(
            role
            for role in (r.format(project=o.project) for r in roles)
            if (role, member) not in held
        )
        if lacks:
            whole = False
            yield Finding(f"account {account}", Level.FAIL, f"lacks {', '.join(lacks)}", TERRAFORM)
    if whole:
        yield Finding("accounts", Level.OK, f"{len(ROLES)} accounts hold their roles")


def _acting(o: Options) -> Iterator[Finding]:
    """Without this GKE refuses every node pool, after Lustre was begun."""
    role = "roles/iam.serviceAccountUser"
    whole = True
    for account, actors in ACTS_AS.items():
        held = o.probes.account_bindings(_email(o.project, account))
        for actor in sorted(actors):
            member = f"serviceAccount:{_email(o.project, actor)}"
            if (role, member) not in held:
                whole = False
                yield Finding(
                    f"account {actor}",
                    Level.FAIL,
                    f"may not act as lustrum-{account} ({role})",
                    f"gcloud iam service-accounts add-iam-policy-binding"
                    f" {_email(o.project, account)} --project={o.project}"
                    f" --role={role} --member={member}",
                )
    if whole:
        yield Finding("acting", Level.OK, "builds may act as the nodes' account")


def _invokers(o: Options) -> Iterator[Finding]:
    whole = True
    for function, accounts in INVOKERS.items():
        service = function.replace("_", "-")
        found = {
            member
            for role, member in o.probes.invoker_bindings(o.region, service)
            if role == "roles/run.invoker"
        }
        wanted = {f"serviceAccount:{_email(o.project, account)}" for account in accounts}
        public = found & PUBLIC
        if public:
            whole = False
            yield Finding(
                f"function {service}",
                Level.FAIL,
                f"may be called by {', '.join(sorted(public))}",
                f"gcloud run services remove-iam-policy-binding {service} --region={o.region}"
                f" --project={o.project} --role=roles/run.invoker --member={min(public)}",
            )
        if wanted - found:
            whole = False
            short = ", ".join(sorted(m.split(":")[1].split("@")[0] for m in wanted - found))
            yield Finding(f"function {service}", Level.FAIL, f"{short} may not call it", TERRAFORM)
    if whole:
        yield Finding(
            "callers", Level.OK, "every function accepts its callers and no one in public"
        )


def _lustre_agent(o: Options) -> Iterator[Finding]:
    """Without this an export fails after the training it should have saved."""
    bucket = o.plan.export_bucket
    agent = lustre_agent(o.probes.number())
    held = {role for role, member in o.probes.bucket_bindings(bucket) if member == agent}
    yield finding(
        "export",
        bool(held & LUSTRE_WRITERS),
        f"Managed Lustre may write gs://{bucket}",
        f"Managed Lustre may not write gs://{bucket}",
        lustre_grant(bucket, agent),
    )


def _alerts(o: Options) -> Iterator[Finding]:
    agent = (
        f"serviceAccount:service-{o.probes.number()}"
        "@gcp-sa-monitoring-notification.iam.gserviceaccount.com"
    )
    yield finding(
        "alerts",
        ("roles/pubsub.publisher", agent) in o.probes.topic_bindings("lustrum-alerts"),
        "Monitoring may publish to lustrum-alerts",
        "Monitoring may not publish to lustrum-alerts: alerts are lost without an error",
        TERRAFORM,
    )


def _job(o: Options) -> Iterator[Finding]:
    subject = f"/subject/ns/{names.NAMESPACE}/sa/{names.JOB_ACCOUNT}"
    found = any(
        role == "roles/pubsub.publisher" and member.endswith(subject)
        for role, member in o.probes.topic_bindings("lustrum-events")
    )
    yield Finding(
        "job",
        Level.OK if found else Level.NOTE,
        "the job may send events"
        if found
        else "the job may not send events yet: its log is read instead, `code` is not fetched",
        ""
        if found
        else f"workload_identity_pool_exists = true once a cluster existed; {TERRAFORM}",
    )


def _secrets(o: Options) -> Iterator[Finding]:
    for secret, otherwise in SECRETS.items():
        try:
            state = o.probes.secret_state(secret)
        except NotFound:
            state = "no version"
        fine = state == "ENABLED"
        yield Finding(
            f"secret {secret}",
            Level.OK if fine else Level.NOTE,
            "has an enabled version" if fine else f"{state}: {otherwise}",
            ""
            if fine
            else f"gcloud secrets versions add {secret} --data-file=- --project={o.project}",
        )


def _you(o: Options) -> Iterator[Finding]:
    yield finding(
        "you",
        o.probes.may_publish("lustrum-requests"),
        "may start runs",
        "may not publish to lustrum-requests",
        f"add yourself to submitters in terraform.tfvars; {TERRAFORM}",
    )


CHECKS: Mapping[str, Callable[[Options], Iterable[Finding]]] = {
    "services": _services,
    "control plane": _control_plane,
    "zones": _zones,
    "quotas": quotas.accelerators,
    "Lustre quota": quotas.lustre_capacity,
    "accounts": _identities,
    "acting": _acting,
    "callers": _invokers,
    "export": _lustre_agent,
    "alerts": _alerts,
    "job": _job,
    "secrets": _secrets,
    "you": _you,
}


def _email(project: str, account: str) -> str:
    return f"lustrum-{account}@{project}.iam.gserviceaccount.com"
