"""A loaded plugin: its hooks, and the exchanges they are called for."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ...decoder import Exchange
from ...decoder.filter import Filter, FilterError, compile
from ...decoder.schema import facts
from ...errors import BarnabasError
from ..conditions.reach import why_never

HOOKS = {
    "connected": "(self, ctx)",
    "request": "(self, message, ctx)",
    "response": "(self, message, ctx)",
    "exchange": "(self, exchange, ctx)",
    "disconnected": "(self, ctx)",
    "tick": "(self, ctx)",
}
"""Every hook with its parameters."""
OF_MESSAGES = ("request", "response", "exchange")
"""Hooks that are called for what the plugin has declared to be interested in."""
_STATE = {"state": "(self)", "restore": "(self, state)"}
EVERY = "*"


class InvalidPlugin(BarnabasError):
    """A class that is no plugin; the text gives the reason. `attribute`: the wrong one."""

    def __init__(self, text: str, attribute: str = "") -> None:
        super().__init__(text)
        self.attribute = attribute


@dataclass(frozen=True, slots=True)
class PluginDescription:
    """A plugin without its code. request, response, exchange: the api keys that these hooks are for; match: the text of its filter."""

    name: str
    source: str
    hooks: list[str]
    request: list[int]
    response: list[int]
    exchange: list[int]
    match: str | None


class Plugin:
    """An instance with its hooks. `name`: that of its class; `source`: what the user wrote to get it."""

    def __init__(self, instance: object, name: str = "", source: str = "") -> None:
        kind = type(instance)
        self.instance = instance
        self.name = name or kind.__name__
        self.source = source
        self.hooks: dict[str, Callable[..., Any]] = {}
        for hook, shape in HOOKS.items():
            found = _method(instance, hook, shape)
            if found is not None:
                self.hooks[hook] = found
        self.state = _method(instance, "state", _STATE["state"])
        self.restore = _method(instance, "restore", _STATE["restore"])
        if not self.hooks:
            near = [name for name in vars(kind) if difflib.get_close_matches(name.removeprefix("on_"), HOOKS, 1)]
            hint = f"; did you mean one of them by {near[0]}?" if near else ""
            raise InvalidPlugin(f"{kind.__name__} has none of the hooks {', '.join(HOOKS)}{hint}")
        self.filter = _filter(instance)
        self.apis = self._declared_apis(getattr(instance, "apis", None))

    def _declared_apis(self, given: Any) -> frozenset[int]:
        """The api keys that the hooks of messages are for."""
        hooks = [hook for hook in OF_MESSAGES if hook in self.hooks]
        of_filter = None if self.filter is None else self.filter.apis()
        every = frozenset(facts.api_keys())
        if given is None:
            if hooks and self.filter is None:
                raise InvalidPlugin(
                    f"{self.name} has the hook {hooks[0]!r} but does not say for what: add "
                    'apis = {"Produce", ...} or match = "api == Produce and topic == orders"',
                    hooks[0],
                )
            return frozenset() if not hooks else every if of_filter is None else of_filter
        keys = _api_keys(given, every)
        both = keys if of_filter is None else keys & of_filter
        if hooks and not both:
            why = "match is not true of any API in apis" if keys else "apis is empty"
            raise InvalidPlugin(f"{why}: no message would be shown to {self.name}", "match" if keys else "apis")
        return both

    def keys(self, hook: str) -> frozenset[int]:
        """The api keys that a hook is for."""
        return self.apis if hook in self.hooks else frozenset()

    def wants(self, hook: str, exchange: Exchange) -> bool:
        """Whether a hook is to be called for this exchange."""
        return hook in self.hooks and exchange.api_key in self.apis and (self.filter is None or self.filter(exchange))

    def describe(self) -> PluginDescription:
        request, response, exchange = (sorted(self.keys(hook)) for hook in OF_MESSAGES)
        match = None if self.filter is None else self.filter.text
        return PluginDescription(self.name, self.source, list(self.hooks), request, response, exchange, match)


def _method(instance: object, name: str, shape: str) -> Callable[..., Any] | None:
    """A hook, if the class has it; InvalidPlugin if it cannot be called as hooks are."""
    found = getattr(instance, name, None)
    if found is None or not callable(found):
        return None
    arguments = shape.count(",")
    try:
        inspect.signature(found).bind(*range(arguments))
    except TypeError:
        raise InvalidPlugin(f"the hook is defined as def {name}{shape}", name) from None
    except ValueError:  # a callable without a signature
        pass
    method: Callable[..., Any] = found
    return method


def _filter(instance: object) -> Filter | None:
    text = getattr(instance, "match", None)
    if text is None:
        return None
    if not isinstance(text, str):
        raise InvalidPlugin(f"match must be a filter as text, not {type(text).__name__}", "match")
    try:
        found = compile(text)
        if getattr(instance, "request", None) is not None:
            found.require_request_only()
    except FilterError as error:
        raise InvalidPlugin(f"match: {error.message}, at column {error.start + 1} of {text!r}", "match") from None
    if why := why_never(found):
        raise InvalidPlugin(f"match: {text!r} is never true: {why}", "match")
    return found


def _api_keys(given: Any, every: frozenset[int]) -> frozenset[int]:
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, Iterable):
        raise InvalidPlugin('apis must be a set of names: {"Produce", "Fetch"}', "apis")
    found: set[int] = set()
    for name in names:
        if name == EVERY:
            return every
        try:
            found.add(facts.api_key(name))
        except (KeyError, ValueError, AttributeError, TypeError):
            near = difflib.get_close_matches(str(name), [facts.api_name(key) for key in every], 1)
            hint = f"did you mean {near[0]!r}?" if near else '"*" means all of them'
            raise InvalidPlugin(f"apis: there is no API {name!r}: {hint}", "apis") from None
    return frozenset(found)
