"""docs/requests.md says what the model accepts: every field, default, bound and choice."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from annotated_types import Ge, Gt, Le, Lt
from lustrum.core import images
from lustrum.core.profiles import profiles
from lustrum.core.request import (
    CancelRequest,
    CheckpointRequest,
    ExtendRequest,
    LimitsRequest,
    LustreRequest,
    StartRequest,
)
from lustrum.core.run_plan import LUSTRE_TIERS
from lustrum.core.trainer import TrainerRequest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

DOCUMENT = (Path(__file__).parents[2] / "docs" / "requests.md").read_text()
SECTIONS: dict[str, type[BaseModel]] = {
    "start": StartRequest,
    "lustre": LustreRequest,
    "trainer": TrainerRequest,
    "checkpoints": CheckpointRequest,
    "limits": LimitsRequest,
    "cancel": CancelRequest,
    "extend": ExtendRequest,
}


def section(name: str) -> str:
    found = re.search(rf"^## {name}\n(.*?)(?=^## |\Z)", DOCUMENT, re.MULTILINE | re.DOTALL)
    assert found is not None, f"docs/requests.md has no section {name}"
    return found.group(1)


def rows(name: str) -> dict[str, tuple[str, str]]:
    """Return field -> (accepted, default) of a section's table."""
    found = {}
    for line in section(name).splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `") and len(cells) == 4:
            found[cells[0].strip("`")] = (cells[1], cells[2])
    return found


FIELDS = [
    pytest.param(name, field, info, id=f"{name}.{field}")
    for name, model in SECTIONS.items()
    for field, info in model.model_fields.items()
]


def literals(annotation: Any) -> list[object]:
    """Return every choice of the Literals inside an annotation."""
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    return [choice for one in get_args(annotation) for choice in literals(one)]


class TestReference:
    @pytest.mark.parametrize("name", SECTIONS)
    def test_table_names_exactly_the_fields_of_the_model(self, name: str) -> None:
        assert list(rows(name)) == list(SECTIONS[name].model_fields)

    @pytest.mark.parametrize(("name", "field", "info"), FIELDS)
    def test_default_is_the_model_s(self, name: str, field: str, info: FieldInfo) -> None:
        _, shown = rows(name)[field]
        if info.is_required():
            assert shown == "required"
            return
        value = info.get_default(call_default_factory=True)
        if isinstance(value, BaseModel):
            assert shown == "see below"
        else:
            assert json.loads(shown.strip("`")) == value

    @pytest.mark.parametrize(("name", "field", "info"), FIELDS)
    def test_bounds_and_choices_are_named(self, name: str, field: str, info: FieldInfo) -> None:
        accepted, _ = rows(name)[field]
        numbers = re.findall(r"-?\d+", accepted)
        for rule in info.metadata:
            for kind, attribute in ((Ge, "ge"), (Gt, "gt"), (Le, "le"), (Lt, "lt")):
                bound = getattr(rule, attribute, None) if isinstance(rule, kind) else None
                if bound not in (None, 0):
                    assert f"{bound:g}" in numbers or str(bound) in numbers, accepted
                if bound == 0:
                    assert "more than 0" in accepted
        for choice in literals(info.annotation):
            assert json.dumps(choice) in accepted

    def test_profiles_are_all_named(self) -> None:
        accepted, _ = rows("start")["profile"]
        assert set(re.findall(r"`([^`]+)`", accepted)) == set(profiles())

    def test_images_are_all_named_with_their_ray(self) -> None:
        found = dict(re.findall(r"^\| `([^`]+:[^`]+)` \| ([\d.]+) \|$", DOCUMENT, re.MULTILINE))
        assert found == {name: image.ray_version for name, image in images.TABLE.items()}

    def test_tiers_are_all_named(self) -> None:
        text = section("lustre")
        for tier, (smallest, step, _) in LUSTRE_TIERS.items():
            assert smallest == step and re.search(rf"\b{tier} in steps of\s+{step}\b", text)

    def test_every_linked_example_exists(self) -> None:
        linked = set(re.findall(r"\]\(\.\./(examples/requests/[^)]+)\)", DOCUMENT))
        root = Path(__file__).parents[2]
        there = {str(p.relative_to(root)) for p in (root / "examples/requests").glob("*.json")}
        assert linked == there
