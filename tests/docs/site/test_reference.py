"""The reference page: made of docstrings, and complete."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

import pytest
from docs.site import reference


def test_the_page_is_made_of_todays_docstrings(repository: Path) -> None:
    assert (repository / "docs" / "reference.md").read_text("utf-8") == reference.page(), "run `make reference`"


@pytest.mark.parametrize("package", reference.PACKAGES)
def test_all_that_is_exported_has_a_docstring(package: str) -> None:
    module = importlib.import_module(package)
    assert inspect.getdoc(module)
    exports = reference.exported(module)
    assert set(exports) == set(module.__all__)
    described = {name for name, value in exports.items() if callable(value) or inspect.ismodule(value)}
    assert [name for name in sorted(described) if not inspect.getdoc(exports[name])] == []
