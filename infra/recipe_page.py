"""Writes what `lustrum plan` says of each profile into docs/recipes.md.

    python -m infra.recipe_page

A test holds the page to it.
"""

from __future__ import annotations

import io

from lustrum.cli.plan import show
from lustrum.core.profiles import profiles
from lustrum.core.request import StartRequest
from lustrum.show.preview import UNKNOWN, preview
from rich.console import Console

from infra.local.functions import ROOT

PAGE = ROOT / "docs" / "recipes.md"
BEGIN = "<!-- from here: python -m infra.recipe_page -->"
RUN_ID = "rl-0123456789"
SHOWN = ("What", "Worst-case cost")  # sections of `lustrum plan`


def plans() -> str:
    """Return the table of all profiles, then of each what `lustrum plan` shows of it."""
    rows, blocks = [], []
    for name, profile in profiles().items():
        if profile.machine == "local":
            continue
        found = preview(StartRequest(profile=name), RUN_ID)
        plan = found.plan
        rows.append(
            f"| `{name}` | {plan.algorithm} | {plan.nodes} x {plan.gpus_per_node} "
            f"| {plan.parallel.split(';')[0]} | {plan.parallel.rpartition(': ')[2]} "
            f"| {plan.model_gib:g} / {plan.checkpoint_gib:g} "
            f"| {found.hourly_cost:,.2f} | {found.worst_cost:,.0f} |"
        )
        text = io.StringIO()
        show(found, UNKNOWN, Console(file=text, width=110, color_system=None), "")
        sections = text.getvalue().split("\n\n")
        kept = [one.rstrip() for one in sections if one.lstrip().startswith(SHOWN)]
        lines = [line.rstrip() for line in "\n\n".join(kept).splitlines()]
        blocks.append(
            f"### {name}\n{profile.about}.\n\n```\n"
            f'$ echo \'{{"profile": "{name}"}}\' | lustrum plan -\n' + "\n".join(lines) + "\n```\n"
        )
    head = (
        "| profile | algorithm | nodes x GPUs | cut | nodes that work | model / checkpoint, GiB "
        "| $ an hour | $ at most in 6 h |\n|---|---|---|---|---|---|---|---|\n"
    )
    return "## Profiles\n" + head + "\n".join(rows) + "\n\n" + "\n".join(blocks)


def page(text: str) -> str:
    """Return the page with its part of the profiles written anew."""
    return text.partition(BEGIN)[0] + BEGIN + "\n\n" + plans()


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(PAGE)
