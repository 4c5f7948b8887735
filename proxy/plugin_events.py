"""What the proxy tells of its plugins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .events import Event


@dataclass(frozen=True, slots=True)
class PluginsLoaded(Event):
    """These plugins are at work. `again`: a file was saved, and this is its new version."""

    plugins: tuple[str, ...]
    again: bool = False

    @property
    def text(self) -> str:
        return f"plugins {'loaded again' if self.again else 'loaded'}: {', '.join(self.plugins)}"


@dataclass(frozen=True, slots=True)
class PluginsKept(Event):
    """A new version cannot be loaded; the one before goes on. `reason` begins with file and line."""

    warning: ClassVar[bool] = True
    reason: str

    @property
    def text(self) -> str:
        return f"{self.reason}; the plugins stay as they were"


@dataclass(frozen=True, slots=True)
class PluginFault(Event):
    """A plugin did something wrong, and its message went on as it came. `faults`: within the last minute; with `most` of them
    it is disabled. `plugin` is "" where none can be blamed."""

    warning: ClassVar[bool] = True
    plugin: str
    hook: str
    reason: str
    faults: int
    most: int

    @property
    def text(self) -> str:
        hook = f", hook {self.hook}" if self.hook else ""
        who = f"plugin {self.plugin!r}{hook}" if self.plugin else "the plugins' process"
        return f"{who}: {self.reason} (fault {self.faults} of {self.most})"


@dataclass(frozen=True, slots=True)
class PluginDisabled(Event):
    """A plugin had too many faults; traffic goes on without it. `plugin` is "" for all of them."""

    warning: ClassVar[bool] = True
    plugin: str
    reason: str

    @property
    def text(self) -> str:
        who = f"plugin {self.plugin!r} is" if self.plugin else "all plugins are"
        return f"{who} disabled: {self.reason}; traffic goes on without; save the file to try again"


@dataclass(frozen=True, slots=True)
class PluginLate(Event):
    """So many messages went on as they came because plugins had too much to do to look at them in time."""

    warning: ClassVar[bool] = True
    count: int

    @property
    def text(self) -> str:
        return f"{self.count} messages went past the plugins: they did not come to look at them in time"


@dataclass(frozen=True, slots=True)
class PluginHangs(Event):
    """A plugin changes requests so that their client cannot take the answer: it waits, or finds nothing of what it asked for."""

    warning: ClassVar[bool] = True
    plugin: str
    api: str
    reason: str

    @property
    def text(self) -> str:
        shown = "".join(each if each.isprintable() else "\ufffd" for each in self.reason)
        return f"plugin {self.plugin!r} changes {self.api} requests so that clients hang or fail: {shown}"


@dataclass(frozen=True, slots=True)
class PluginSaid(Event):
    """What a plugin logs."""

    plugin: str
    line: str

    @property
    def text(self) -> str:
        shown = "".join(each if each.isprintable() else "\ufffd" for each in self.line)
        return f"plugin {self.plugin!r}: {shown}" if self.plugin else f"plugins: {shown}"
