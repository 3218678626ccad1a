"""What a check of `lustrum doctor` answers, and how it is printed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from rich.text import Text

from lustrum.core import names
from lustrum.core.run_plan import RunPlan
from lustrum.doctor.project_questions import Probes

TERRAFORM = "terraform -chdir=infra/terraform apply"


class Level(StrEnum):
    """What a finding means for a first run."""

    OK = "ok"
    NOTE = "note"  # a run gets through, with less
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """One line of the answer."""

    check: str
    level: Level
    line: str
    fix: str = ""


@dataclass(frozen=True)
class Options:
    """What to examine: a project, the control plane's region, and what a run would need."""

    project: str
    region: str
    plan: RunPlan
    probes: Probes
    as_json: bool = False


def finding(check: str, fine: bool, good: str, bad: str, fix: str) -> Finding:
    """Return a finding that is fine, or a failure and how to fix it."""
    return Finding(check, Level.OK, good) if fine else Finding(check, Level.FAIL, bad, fix)


def regions(plan: RunPlan) -> list[str]:
    """Return the regions of a plan's zones, in their order."""
    return list(dict.fromkeys(names.region_of(zone) for zone in plan.zones))


_STYLES = {Level.OK: "green", Level.NOTE: "yellow", Level.FAIL: "bold red"}


def lines(findings: list[Finding]) -> Iterator[Text]:
    """Yield one line for each finding; the fix below, unbroken, to be copied."""
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        # Text: what a project answers is never markup
        mark = Text(f"{finding.level.value:<5}", _STYLES[finding.level])
        yield mark + Text(f"{finding.check:<{width}}  {finding.line}")
        if finding.fix:
            yield Text(f"      -> {finding.fix}", "dim")
