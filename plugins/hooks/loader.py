"""From a source to plugins: runs the file, and makes its classes with their settings.

This runs the user's code, in a process that may be ended at any time (`proxy.relay.interception.plugin_host.host`).
"""

from __future__ import annotations

import difflib
import inspect
import linecache
import os
import sys
import traceback
from types import ModuleType
from typing import Any

from ...diagnostics import said
from .plugin import HOOKS, InvalidPlugin, Plugin
from .sources import PluginError, PluginSource, entry_point

_KINDS: dict[Any, type] = {"bool": bool, "int": int, "float": float, "str": str}
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def load(source: PluginSource, number: int = 0) -> list[Plugin]:
    """The plugins of a source whose file has been read. `number` distinguishes modules of files with the same name.

    PluginError has the file and line of an error."""
    if not source.path:
        return [_from_package(source)]
    name = f"barnabas_plugin_{number}_{source.name}"
    module = ModuleType(name)
    module.__file__ = source.path
    text = source.text if source.text is not None else source.read().text or ""
    linecache.cache[source.path] = (len(text), None, text.splitlines(keepends=True), source.path)
    sys.modules[name] = module
    folder = os.path.dirname(source.path)
    if folder not in sys.path:
        sys.path.append(folder)  # modules in its folder; last, so that they hide no others
    try:
        exec(compile(text, source.path, "exec", dont_inherit=True), module.__dict__)
    except Exception as error:  # the user's code
        raise PluginError(described(error, source.path)) from None
    except SystemExit as error:
        raise PluginError(f"{source.path}: it ends the program while it is loaded (SystemExit: {error})") from None
    return [_make_plugin(kind, source) for kind in _classes(module, source)]


def _from_package(source: PluginSource) -> Plugin:
    point = entry_point(source)
    try:
        kind = point.load()
    except Exception as error:  # the package's code
        raise PluginError(f"{source.given} ({point.value}): {described(error, '')}") from None
    if not inspect.isclass(kind):
        raise PluginError(f"{source.given}: {point.value} is not a class")
    return _make_plugin(kind, source, source.name)


def _classes(module: ModuleType, source: PluginSource) -> list[type]:
    here = [each for each in vars(module).values() if inspect.isclass(each) and each.__module__ == module.__name__]
    if source.wanted:
        found = getattr(module, source.wanted, None)
        if not inspect.isclass(found):
            near = difflib.get_close_matches(source.wanted, [each.__name__ for each in here], 1)
            known = ", ".join(each.__name__ for each in here) or "none"
            hint = f"did you mean {near[0]}?" if near else f"there: {known}"
            raise PluginError(f"{source.path}: it has no class {source.wanted}: {hint}")
        return [found]
    hooked = [each for each in here if not each.__name__.startswith("_") and any(hasattr(each, hook) for hook in HOOKS)]
    if hooked:
        return hooked
    if len(here) == 1:
        return here  # `Plugin` reports what it lacks
    raise PluginError(f"{source.path}: no class in it has one of the hooks {', '.join(HOOKS)}")


def _make_plugin(kind: type, source: PluginSource, name: str = "") -> Plugin:
    place = f"{source.path}:{_line_of(kind)}" if source.path else source.given
    try:
        settings = _settings(kind, dict(source.settings))
    except InvalidPlugin as unfit:
        raise PluginError(f"{place}: {unfit}") from None
    try:
        return Plugin(kind(**settings), name, source.given)
    except InvalidPlugin as unfit:
        line = _line_of(kind, unfit.attribute)
        raise PluginError(f"{source.path}:{line}: {unfit}" if source.path else f"{place}: {unfit}") from None
    except Exception as error:  # the constructor's
        raise PluginError(described(error, source.path) if source.path else f"{place}: {described(error, '')}") from None


def _line_of(kind: type, attribute: str = "") -> int:
    """Where a class is defined, or a method of it."""
    try:
        found = getattr(kind, attribute) if attribute else kind
        return inspect.getsourcelines(found)[1] or 1
    except (OSError, TypeError, AttributeError):
        return _line_of(kind) if attribute else 1


def _settings(kind: type, given: dict[str, str]) -> dict[str, Any]:
    """The arguments for a class, each converted to its annotated type or that of its default."""
    try:
        signature = inspect.signature(kind)
    except ValueError:
        signature = inspect.Signature()
    parameters = {
        name: parameter
        for name, parameter in signature.parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }
    found: dict[str, Any] = {}
    for name, text in given.items():
        if name not in parameters:
            near = difflib.get_close_matches(name, parameters, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(parameters) or 'none'}"
            raise InvalidPlugin(f"{kind.__name__} has no setting {name!r}: {hint}")
        found[name] = _convert(name, text, parameters[name])
    missing = [name for name, each in parameters.items() if each.default is each.empty and name not in found]
    if missing:
        raise InvalidPlugin(f"{kind.__name__} needs the setting {missing[0]!r}: add ?{missing[0]}=VALUE after it")
    return found


def _convert(name: str, text: str, parameter: inspect.Parameter) -> Any:
    default = parameter.default
    wanted = _KINDS.get(parameter.annotation, parameter.annotation)  # under future annotations they are texts
    if wanted not in (bool, int, float, str) and default is not parameter.empty:
        wanted = type(default)
    try:
        if wanted is bool:
            return _TRUTH[text.lower()]
        return wanted(text) if wanted in (int, float) else text
    except (KeyError, ValueError):
        kind = {bool: "true or false", int: "a whole number", float: "a number"}[wanted]
        raise InvalidPlugin(f"the setting {name!r} must be {kind}, not {text!r}") from None


def described(error: BaseException, path: str) -> str:
    """An exception in one line that begins with the place in the plugin's file (the innermost one), if it was there."""
    kind = type(error).__name__
    if isinstance(error, SyntaxError) and error.filename:
        column = f":{error.offset}" if error.offset else ""
        return f"{error.filename}:{error.lineno or 1}{column}: {kind}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    place = next((frame for frame in reversed(frames) if path and frame.filename == path), None)
    if place is None and frames:
        place = frames[-1] if not path else None
    text = " ".join(f"{kind}: {said(error)}".split())[:500]
    if place is not None:
        return f"{place.filename}:{place.lineno}: {text}"
    return f"{path}: {text}" if path else text
