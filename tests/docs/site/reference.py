"""The page `docs/reference.md`, made of the docstrings of what programs may import.

    PYTHONPATH=tests python -m docs.site.reference > docs/reference.md         (make reference)
"""

from __future__ import annotations

import enum
import importlib
import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

PACKAGES = ("barnabas.decoder", "barnabas.captures", "barnabas.plugins", "barnabas.testing")
HEAD = """\
# Python reference

Generated from the docstrings by `make reference`; [Python](python.md) has examples. Everything that is not listed here is internal and may change.
"""
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_QUALIFIED = re.compile(r"\b(?:barnabas|collections|pathlib|typing|datetime|uuid)(?:\.\w+)*\.(\w+)")


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *(line for name in PACKAGES for line in _package(importlib.import_module(name)))])


def exported(module: ModuleType) -> dict[str, Any]:
    """What a package or module exports: `__all__`, or what is public and defined in it."""
    names = getattr(module, "__all__", None) or [
        name for name, value in vars(module).items() if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
    ]
    return {name: getattr(module, name) for name in sorted(names, key=str.lower)}


def _package(module: ModuleType) -> Iterator[str]:
    yield f"## {module.__name__}\n\n{docstring(module)}\n"
    for name, value in exported(module).items():
        if inspect.ismodule(value):
            yield f"### {module.__name__.rpartition('.')[2]}.{name}\n\n{docstring(value)}\n"
            for inner, inner_value in exported(value).items():
                if callable(inner_value):
                    yield f"- `{inner}{signature(inner_value)}`: {summary(inner_value)}"
            yield ""
        else:
            yield from _entry(name, value)


def _entry(name: str, value: Any) -> Iterator[str]:
    if not callable(value):
        yield f"### {name}\n\n`{type(value).__name__}`\n"
        return
    yield f"### {name}\n"
    if inspect.isclass(value) and issubclass(value, enum.Enum):
        yield f"{docstring(value)}\n"
        yield from (f"- `{member.name}` = `{member.value!r}`" for member in value)
        yield ""
        return
    if not (inspect.isclass(value) and issubclass(value, Exception)):
        yield f"```text\n{name}{signature(value)}\n```\n"
    yield f"{docstring(value)}\n"
    if inspect.isclass(value):
        yield from _members(value)
        yield ""


def _members(of: type) -> Iterator[str]:
    for name, member in inspect.getmembers_static(of):
        if name.startswith("_") or not getattr(_defined_by(of, name), "__module__", "").startswith("barnabas"):
            continue
        function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if isinstance(function, property):
            if function.__doc__:
                yield f"- `{name}`: {summary(function)}"
        elif inspect.isfunction(function) and function.__doc__:
            yield f"- `{name}{signature(function, method=not isinstance(member, staticmethod))}`: {summary(function)}"


def _defined_by(of: type, name: str) -> type | None:
    return next((each for each in of.__mro__ if name in vars(each)), None)


def docstring(of: Any) -> str:
    """The docstring, without its indentation."""
    return inspect.getdoc(of) or ""


def summary(of: Any) -> str:
    """A docstring on one line, without its code."""
    paragraphs = [each for each in docstring(of).split("\n\n") if not each.startswith("    ")]
    return " ".join(" ".join(paragraphs).split())


def signature(of: Any, *, method: bool = False) -> str:
    """Parameters and result, without the module names of types."""
    try:
        found = inspect.signature(of)
    except ValueError:
        return "(...)"
    parameters = [each.replace(annotation=_Written.of(each.annotation)) for each in found.parameters.values()]
    written = found.replace(parameters=parameters[1 if method else 0 :], return_annotation=_Written.of(found.return_annotation))
    return _ADDRESS.sub("", _QUALIFIED.sub(r"\1", str(written)))


class _Written:
    """An annotation as it is written in the source: without the quotes that `inspect` puts around it."""

    def __init__(self, text: str) -> None:
        self._text = text

    @classmethod
    def of(cls, annotation: Any) -> Any:
        annotation = getattr(annotation, "__forward_arg__", annotation)  # of a NamedTuple
        return cls(annotation) if isinstance(annotation, str) else annotation

    def __repr__(self) -> str:
        return self._text


if __name__ == "__main__":
    print(page(), end="")
