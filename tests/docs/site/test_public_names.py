"""docs/python.md and `barnabas.decoder` name the same things, and all that programs may import has a docstring."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from barnabas import decoder
from barnabas.decoder import embedded, filter, records, values


def section() -> str:
    text = (Path(__file__).parents[3] / "docs" / "python.md").read_text("utf-8")
    return text.partition("\n## decoder\n")[2].partition("\n## ")[0]


def test_docs_and_package_name_the_same() -> None:
    assert set(decoder.__all__) <= set(re.findall(r"\w+", section()))
    assert set(re.findall(r"\bdecoder\.(\w+)", section())) <= set(decoder.__all__)


def without_docstring(module: ModuleType) -> Iterator[str]:
    """The public functions, classes, methods and properties that have none."""
    for name in module.__all__:
        item = getattr(module, name)
        if not inspect.isclass(item):
            if callable(item) and not inspect.getdoc(item):
                yield name
            continue
        if not item.__doc__ or item.__doc__.startswith(f"{name}("):  # as dataclasses have it by themselves
            yield name
        for of, member in vars(item).items():
            if not of.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)) and not inspect.getdoc(member):
                yield f"{name}.{of}"


@pytest.mark.parametrize("module", [decoder, embedded, filter, records, values], ids=lambda module: module.__name__)
def test_everything_public_has_a_docstring(module: ModuleType) -> None:
    assert list(without_docstring(module)) == []
