"""What Barnabas is made of: the bill of materials names it, and constraints.txt pins it with hashes and no address."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import distribution, packages_distributions, version
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from supply import sbom

PRODUCT = ("captures", "decoder", "plugins", "proxy", "ui")
IMPORTED = re.compile(r"^ *(?:import|from) (\w+)(?=[. ,\n])", re.MULTILINE)
NOT_OURS = {"pytest", "barnabas"}
"""The pytest plugin is loaded by pytest itself; Barnabas is named apart."""


@pytest.fixture(scope="module")
def bill() -> dict[str, Any]:
    return sbom.bill()


def pins(repository: Path) -> Iterator[tuple[Requirement, list[str]]]:
    text = (repository / "constraints.txt").read_text()
    for entry in re.sub(r"\s*#.*", "", text).replace("\\\n", " ").splitlines():
        if entry.strip():
            pinned, *hashes = entry.split("--hash=")
            yield Requirement(pinned), [each.strip() for each in hashes]


def test_every_component_is_what_is_installed(bill: dict[str, Any]) -> None:
    for each in (bill["metadata"]["component"], *bill["components"]):
        assert each["version"] == version(each["name"])
        assert each["purl"] == f"pkg:pypi/{canonicalize_name(each['name'])}@{each['version']}" == each["bom-ref"]
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", bill["serialNumber"])


def test_what_the_product_imports_is_in_it(bill: dict[str, Any], repository: Path) -> None:
    """By the imports in the source, whatever the metadata say."""
    named = {canonicalize_name(each["name"]) for each in bill["components"]}
    known = packages_distributions()
    missing: set[str] = set()
    found: set[str] = set()
    for folder in PRODUCT:
        for path in (repository / folder).rglob("*.py"):
            for top in set(IMPORTED.findall(path.read_text())) - sys.stdlib_module_names - NOT_OURS:
                if top in known and not {canonicalize_name(name) for name in known[top]} & named:
                    missing.add(top)
                found.add(top)
    assert {"aiohttp", "textual", "pyspark", "confluent_kafka"} <= found
    assert missing == set()


def test_its_edges_are_the_requirements(bill: dict[str, Any]) -> None:
    components = {each["bom-ref"]: each for each in (bill["metadata"]["component"], *bill["components"])}
    edges = {each["ref"]: each["dependsOn"] for each in bill["dependencies"]}
    assert edges.keys() == components.keys() >= {to for targets in edges.values() for to in targets}
    for ref, targets in edges.items():
        required = {canonicalize_name(Requirement(text).name) for text in distribution(components[ref]["name"]).requires or ()}
        assert {canonicalize_name(components[to]["name"]) for to in targets} <= required
    direct = {canonicalize_name(components[to]["name"]) for to in edges[bill["metadata"]["component"]["bom-ref"]]}
    assert {"aiohttp", "textual", "confluent-kafka", "pyspark"} <= direct and "pytest" not in direct


def test_those_without_extras_are_required(bill: dict[str, Any]) -> None:
    scopes = {each["name"]: each["scope"] for each in bill["components"]}
    assert (scopes["aiohttp"], scopes["rich"], scopes["pyspark"]) == ("required", "required", "optional")


def test_constraints_pin_all_that_users_install_with_hashes_and_no_address(repository: Path, bill: dict[str, Any]) -> None:
    text = (repository / "constraints.txt").read_text()
    assert "://" not in text and "index" not in text
    found = {canonicalize_name(pin.name): pin for pin, hashes in pins(repository)}
    for pin, hashes in pins(repository):
        assert re.fullmatch(r"==[^,*]+", str(pin.specifier)), pin
        assert hashes and all(re.fullmatch(r"sha256:[0-9a-f]{64}", each) for each in hashes), pin
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"]]
    for extra, listed in project["optional-dependencies"].items():
        asked += listed if extra not in sbom.LEFT_OUT else []
    for requirement in map(Requirement, asked):
        (exactly,) = found[canonicalize_name(requirement.name)].specifier
        assert requirement.specifier.contains(exactly.version), requirement
