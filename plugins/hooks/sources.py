"""Where a plugin comes from: a Python file, or a class that a package offers in the entry-point group.

my.py                       every class of the file that has hooks
my.py:Tenant                this one
my.py:Tenant?prefix=a.      with settings: arguments of the class, by name
tenant?prefix=a.            an entry point of the group `barnabas.plugins`, by its name
"""

from __future__ import annotations

import difflib
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ...errors import BarnabasError

if TYPE_CHECKING:
    from importlib import metadata

GROUP = "barnabas.plugins"
MOST_BYTES = 1 << 20
"""A plugin's file may have."""


class PluginError(BarnabasError):
    """A plugin cannot be found or loaded: one line that begins with its place and ends with the remedy."""


@dataclass(frozen=True, slots=True)
class PluginSource:
    """Where to find a plugin. `path`: its file, absolute, "" for an entry point called `name`. `wanted`: the class, "" for
    all. `text`: the file's content, None until it is read."""

    given: str
    path: str
    name: str
    wanted: str
    settings: tuple[tuple[str, str], ...] = ()
    text: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> PluginSource:
        return cls(**fields | {"settings": tuple((key, value) for key, value in fields["settings"])})

    def read(self) -> PluginSource:
        """A copy with the current text of the file. Raises PluginError."""
        if not self.path:
            return self
        try:
            with open(self.path, "rb") as file:
                data = file.read(MOST_BYTES + 1)
        except OSError as error:
            raise PluginError(f"{self.path}: cannot be read: {error.strerror or error}") from None
        if len(data) > MOST_BYTES:
            raise PluginError(f"{self.path}: a plugin's file may have at most {MOST_BYTES} bytes")
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise PluginError(f"{self.path}: this is not UTF-8 text (byte {error.start})") from None
        return PluginSource(self.given, self.path, self.name, self.wanted, self.settings, text)


def parse(given: str, base: Path | None = None) -> PluginSource:
    """A source in one of the forms above. Raises PluginError. `base`: the folder of relative paths."""
    place, question, rest = given.partition("?")
    settings = []
    for pair in rest.split("&") if question and rest else ():
        key, equals, value = pair.partition("=")
        if not equals or not key.isidentifier():
            raise PluginError(f"{given}: settings must be NAME=VALUE, separated by &, but {pair!r} is not")
        settings.append((key, unquote(value)))
    before, colon, wanted = place.rpartition(":")
    if not (colon and wanted.isidentifier()):
        before, wanted = place, ""
    if before.endswith(".py") or os.sep in before:
        path = (base or Path()) / Path(before).expanduser()
        return PluginSource(given, str(path.absolute()), path.stem, wanted, tuple(settings))
    if not place:
        raise PluginError(f"{given!r} is not a plugin: give a file (my.py, my.py:Class), or the name of an installed one")
    return PluginSource(given, "", place, "", tuple(settings))


def installed() -> dict[str, metadata.EntryPoint]:
    """The plugins that packages offer, by name. Nothing of them is imported."""
    from importlib import metadata  # imported late: most proxies have no plugins

    return {point.name: point for point in metadata.entry_points(group=GROUP)}


def entry_point(source: PluginSource) -> metadata.EntryPoint:
    """The entry point that a source names; PluginError with the nearest name if there is none."""
    found = installed()
    if source.name in found:
        return found[source.name]
    near = difflib.get_close_matches(source.name, found, 1)
    hint = f"did you mean {near[0]!r}?" if near else "`barnabas plugins list` shows them; a file's name ends in .py"
    raise PluginError(f"{source.given}: no plugin of this name is installed: {hint}")
