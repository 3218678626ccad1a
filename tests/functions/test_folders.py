"""What is deployed: folders, targets and requirements agree with the architecture and the lock."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.functions.support import NAMES, ROOT

HOUSE = ROOT.parent
LIBRARY = HOUSE / "shared"
# Import root -> distribution, for everything a function may load that is not the library's own.
DISTRIBUTIONS = {
    "cronsim": "cronsim",
    "flask": None,
    "functions_framework": "functions-framework",
    "google.api_core": None,
    "google.auth": "google-auth",
    "google.cloud.container_v1": "google-cloud-container",
    "google.cloud.firestore": "google-cloud-firestore",
    "google.cloud.firestore_v1": "google-cloud-firestore",
    "google.cloud.monitoring_v3": "google-cloud-monitoring",
    "google.cloud.pubsub_v1": "google-cloud-pubsub",
    "google.cloud.workflows": "google-cloud-workflows",
    "grpc": None,
    "httpx": "httpx",
    "jinja2": "jinja2",
    "kubernetes": "kubernetes",
    "matplotlib": "matplotlib",
    "pydantic": "pydantic",
    "urllib3": None,
    "yaml": "pyyaml",
    "requests": "requests",
    "markupsafe": None,
    "numpy": None,
}
# The services a step asks for, by the attribute that makes the adapter.
SERVICES = {
    "ledger": ["google.cloud.firestore", "lustrum.adapters.ledger"],
    "publisher": ["lustrum.adapters.pubsub"],
    "workflows": ["lustrum.adapters.workflows"],
    "builds": ["lustrum.adapters.builds"],
    "gke": ["lustrum.adapters.gke"],
    "lustre": ["lustrum.adapters.lustre"],
    "compute": ["lustrum.adapters.compute"],
    "storage": ["lustrum.adapters.storage"],
    "monitoring": ["lustrum.adapters.monitoring"],
    "kubernetes": ["lustrum.adapters.kubernetes", "lustrum.adapters.gke"],
    "ray": ["lustrum.adapters.ray_jobs"],
}


def locked() -> dict[str, str]:
    """Return name -> version of uv.lock."""
    found = tomllib.loads((HOUSE / "uv.lock").read_text())
    return {one["name"]: one.get("version", "") for one in found["package"]}


def pinned(name: str) -> dict[str, str]:
    """Return what a function's requirements pin."""
    lines = (ROOT / name / "requirements.txt").read_text().splitlines()
    pins = [line.split("==") for line in lines if line and not line.startswith("#")]
    assert all(len(pin) == 2 for pin in pins), lines
    return {package: version for package, version in pins}


def module_file(module: str) -> Path | None:
    """Return the file of one of the library's modules."""
    path = LIBRARY / module.replace(".", "/")
    for one in (path.with_suffix(".py"), path / "__init__.py"):
        if one.exists():
            return one
    return None


def tops(path: Path) -> list[ast.stmt]:
    """Return the statements that run when a file is imported (not those for the type checker)."""
    tree = ast.parse(path.read_text())
    return [one for one in tree.body if not isinstance(one, ast.If)]


def imports(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the modules that import statements name, directly or as ``from x import y``."""
    found: set[str] = set()
    for one in nodes:
        if isinstance(one, ast.Import):
            found |= {alias.name for alias in one.names}
        elif isinstance(one, ast.ImportFrom) and one.module and one.level == 0:
            found.add(one.module)
            found |= {f"{one.module}.{alias.name}" for alias in one.names}
    return found


def at_import(todo: Iterable[str]) -> set[str]:
    """Return the foreign modules that importing these modules loads."""
    waiting, seen, foreign = list(todo), set(), set()
    while waiting:
        module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        if not module.startswith("lustrum"):
            foreign.add(module)
            continue
        file = module_file(module)
        if file is None:
            continue  # a name in a module
        # an adapter's own late imports happen as soon as it is used
        late = "adapters" in file.parts or file.name == "report.py" or file.name == "plots.py"
        body = tops(file)
        waiting += imports(ast.walk(ast.parse(file.read_text())) if late else body)
        waiting += [module.rsplit(".", 1)[0]] if "." in module else []
    return foreign


def reached(module: str, function: str) -> tuple[set[str], set[str]]:
    """Return the services and late imports of a step function and all it calls in the steps."""
    services: set[str] = set()
    late: set[str] = set()
    todo, seen = [(module, function)], set()
    while todo:
        place = todo.pop()
        file = module_file(place[0])
        if place in seen or file is None:
            continue
        seen.add(place)
        tree = ast.parse(file.read_text())
        names = {
            alias.asname or alias.name: (one.module, alias.name)
            for one in ast.walk(tree)
            if isinstance(one, ast.ImportFrom)
            and (one.module or "").startswith("lustrum.handlers")
            for alias in one.names
        }
        names |= {
            one.name: (place[0], one.name) for one in tree.body if isinstance(one, ast.FunctionDef)
        }
        names |= {
            target.id: (place[0], target.id)
            for one in tree.body
            if isinstance(one, ast.Assign | ast.AnnAssign)
            for target in (one.targets if isinstance(one, ast.Assign) else [one.target])
            if isinstance(target, ast.Name)
        }
        for one in tree.body:
            own = [getattr(one, "name", None)]
            if isinstance(one, ast.Assign | ast.AnnAssign):
                targets = one.targets if isinstance(one, ast.Assign) else [one.target]
                own = [t.id for t in targets if isinstance(t, ast.Name)]
            if place[1] not in own:
                continue
            late |= imports(ast.walk(one))
            for part in ast.walk(one):
                if isinstance(part, ast.Attribute) and part.attr in SERVICES:
                    services.add(part.attr)
                elif isinstance(part, ast.Name) and part.id in names:
                    todo.append(names[part.id])
    return services, late


def loads(name: str) -> set[str]:
    """Return every foreign module that a function loads on its own way through the library."""
    main = ROOT / name / "main.py"
    body = ast.parse(main.read_text()).body
    modules = imports(body)
    for one in body:
        if isinstance(one, ast.ImportFrom) and (one.module or "").startswith("lustrum.handlers"):
            for alias in one.names:
                services, late = reached(str(one.module), alias.name)
                modules |= late
                for service in services:
                    modules |= set(SERVICES[service])
    return at_import(modules)


def distribution(module: str) -> str | None:
    for root, package in DISTRIBUTIONS.items():
        if module == root or module.startswith(root + "."):
            return package
    return None


class TestFolders:
    def test_the_folders_are_those_of_the_architecture(self) -> None:
        text = (HOUSE / "docs" / "architecture.md").read_text()
        table = text.split("| function | caller | does |")[1].split("\n\n")[0]
        assert (
            re.findall(r"^\| `(\w+)`", table, re.MULTILINE)
            and sorted(re.findall(r"^\| `(\w+)`", table, re.MULTILINE)) == NAMES
        )

    @pytest.mark.parametrize("name", NAMES)
    def test_the_target_has_the_name_of_the_folder(self, name: str) -> None:
        tree = ast.parse((ROOT / name / "main.py").read_text())
        assert name in {one.name for one in tree.body if isinstance(one, ast.FunctionDef)}

    @pytest.mark.parametrize("name", NAMES)
    def test_the_pins_are_those_of_the_lock(self, name: str) -> None:
        lock = locked()
        for package, version in pinned(name).items():
            assert lock[package] == version, package

    @pytest.mark.parametrize("name", NAMES)
    def test_the_pins_cover_what_the_function_loads(self, name: str) -> None:
        needed = {distribution(one) for one in loads(name)} - {None}
        missing = needed - set(pinned(name))
        assert not missing, f"{name} loads what it does not pin"

    @pytest.mark.parametrize("name", NAMES)
    def test_nothing_foreign_is_loaded_unseen(self, name: str) -> None:
        known = tuple(DISTRIBUTIONS)
        for module in loads(name):
            root = module.split(".")[0]
            assert (
                root in sys.stdlib_module_names
                or module.startswith(known)
                or root
                in (
                    "google",
                    "__future__",
                )
            ), module

    @pytest.mark.parametrize("name", NAMES)
    def test_heavy_packages_are_pinned_only_where_they_are_loaded(self, name: str) -> None:
        heavy = {"matplotlib", "kubernetes", "google-cloud-container", "google-cloud-pubsub"}
        needed = {distribution(one) for one in loads(name)}
        assert heavy & set(pinned(name)) <= needed
