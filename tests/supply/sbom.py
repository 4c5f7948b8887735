"""The software bill of materials of Barnabas with its extras, as CycloneDX 1.6 JSON, from the metadata of what is installed.

    PYTHONPATH=tests python -m supply.sbom > sbom.cdx.json        `make sbom`

What only tests use is left out, and the extra `connect`. Every package that is required here is named with its version, its license
as it says itself, and what it requires; hashes are in constraints.txt, as a package has one for each of its files.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Iterable
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = "barnabas"
LEFT_OUT = {"docs", "test", "connect"}
"""What only the site and tests use, and Spark Connect's client, which is not installed where this is made."""
Json = dict[str, Any]


class Missing(Exception):
    """A package that is required is not installed, so that nothing is known of it."""


def extras() -> list[str]:
    """The extras that are described."""
    return sorted(set(distribution(ROOT).metadata.get_all("Provides-Extra") or ()) - LEFT_OUT)


def requirements(of: Distribution, wanted: Iterable[str] = ()) -> list[Requirement]:
    """What a package requires on this machine, with these of its extras."""
    found = [Requirement(text) for text in of.requires or ()]
    environments = [{"extra": extra} for extra in ("", *wanted)]
    return [each for each in found if each.marker is None or any(map(each.marker.evaluate, environments))]


def closure(wanted: Iterable[str]) -> dict[str, tuple[Distribution, set[str]]]:
    """All packages below Barnabas with these extras, by their names, each with the names that it requires."""
    found: dict[str, tuple[Distribution, set[str]]] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [(ROOT, frozenset(wanted))]
    while waiting:
        name, its_extras = waiting.pop()
        if (name, its_extras) in seen:
            continue
        seen.add((name, its_extras))
        try:
            package = distribution(name)
        except PackageNotFoundError:
            raise Missing(f"{name} is not installed: install all extras first (make .venv/.test)") from None
        needs = requirements(package, its_extras)
        found.setdefault(name, (package, set()))[1].update(canonicalize_name(each.name) for each in needs)
        waiting += [(canonicalize_name(each.name), frozenset(each.extras)) for each in needs]
    return found


def reference(of: Distribution) -> str:
    """Its package URL."""
    return f"pkg:pypi/{canonicalize_name(of.metadata['Name'])}@{of.version}"


def licenses(of: Distribution) -> list[Json]:
    """As the package says: an expression, else what its classifiers or its own words name."""
    expression = of.metadata.get("License-Expression")
    if expression:
        return [{"expression": expression}]
    named = [text.rpartition(" :: ")[2] for text in of.metadata.get_all("Classifier") or () if text.startswith("License :: ")]
    words = (of.metadata.get("License") or "").strip().partition("\n")[0]
    return [{"license": {"name": name}} for name in dict.fromkeys(named or ([words] if words else []))]


def component(of: Distribution, kind: str, scope: str = "") -> Json:
    found: Json = {"type": kind, "bom-ref": reference(of), "name": of.metadata["Name"], "version": of.version}
    found["purl"] = found["bom-ref"]
    if scope:
        found["scope"] = scope
    if summary := of.metadata.get("Summary"):
        found["description"] = summary
    if named := licenses(of):
        found["licenses"] = named
    return found


def bill() -> Json:
    """The bill: the same bytes for the same packages."""
    everything, required = closure(extras()), closure(())
    below = sorted(name for name in everything if name != ROOT)
    found: Json = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": component(everything[ROOT][0], "application")},
        "components": [
            component(everything[name][0], "library", "required" if name in required else "optional") for name in below
        ],
        "dependencies": [
            {"ref": reference(package), "dependsOn": sorted(reference(everything[each][0]) for each in needs)}
            for _, (package, needs) in sorted(everything.items())
        ],
    }
    content = json.dumps(found, sort_keys=True)
    return found | {"serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}"}


if __name__ == "__main__":
    try:
        json.dump(bill(), sys.stdout, indent=2)
    except Missing as error:
        sys.exit(str(error))
    print()
