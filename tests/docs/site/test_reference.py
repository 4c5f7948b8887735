"""The generated pages: up to date, and complete."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

import pytest
from docs.site import detectors, reference


def test_the_pages_are_todays(repository: Path) -> None:
    for generator in (reference, detectors):
        file = f"{generator.__name__.rpartition('.')[2]}.md"
        assert (repository / "docs" / file).read_text("utf-8") == generator.page(), f"{file}: run `make reference`"


@pytest.mark.parametrize("package", reference.PACKAGES)
def test_all_that_is_exported_has_a_docstring(package: str) -> None:
    module = importlib.import_module(package)
    assert inspect.getdoc(module)
    exports = reference.exported(module)
    assert set(exports) == set(module.__all__)
    described = {name for name, value in exports.items() if callable(value) or inspect.ismodule(value)}
    assert [name for name in sorted(described) if not inspect.getdoc(exports[name])] == []
