"""The user's own settings of the screens: a TOML file with keys, the theme, saved filters and colour rules.

theme = "light"
columns = ["No", "Client", "API", "Latency", "Result"]

[keys]
"exchanges.filter" = "/ f"

[filters]
slow = "latency > 100ms"

[[colours]]
filter = "api == Heartbeat"
role = "muted"
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, get_args

from ....errors import BarnabasError
from ..keys import KeyConflict, keymap
from ..widgets.palette import THEMES, Role


class BadSettings(BarnabasError, ValueError):
    """The file cannot be used; the text says where and what to change."""


class ColourRule(NamedTuple):
    """Rows that a filter selects are drawn in a role."""

    filter: str
    role: Role


@dataclass(frozen=True)
class ScreenSettings:
    """`keys`: Textual's keymap; `theme`: a name of `THEMES` or ""; `colours`: the first rule that fits counts."""

    keys: dict[str, str] = field(default_factory=dict)
    theme: str = ""
    columns: tuple[str, ...] = ()
    filters: dict[str, str] = field(default_factory=dict)
    colours: tuple[ColourRule, ...] = ()


def default_path() -> Path:
    """``$XDG_CONFIG_HOME/barnabas/ui.toml``."""
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "barnabas" / "ui.toml"


def read_settings(path: Path | None = None) -> ScreenSettings:
    """The settings of a file, by default the user's; none if that is not there. Raises `BadSettings`."""
    given = path is not None
    path = path or default_path()
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        if given:
            raise BadSettings(f"{path}: no such file") from None
        return ScreenSettings()
    except (OSError, UnicodeDecodeError) as error:
        raise BadSettings(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    try:
        return parse_settings(text)
    except BadSettings as error:
        raise BadSettings(f"{path}: {error}") from None


def parse_settings(text: str) -> ScreenSettings:
    """Settings from TOML. Unknown names are refused with `BadSettings`."""
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadSettings(str(error)) from None
    known = ("keys", "theme", "columns", "filters", "colours")
    for name in found:
        if name not in known:
            raise BadSettings(f"{name!r} is not a setting; there are {', '.join(known)}")
    theme = found.get("theme", "")
    if theme and theme not in THEMES:
        raise BadSettings(f"there is no theme {theme!r}; there are {', '.join(THEMES)}")
    from .columns import TITLES

    columns = _texts(found.get("columns", []), "columns")
    for title in columns:
        if title not in TITLES:
            raise BadSettings(f"there is no column {title!r}; there are {', '.join(TITLES)}")
    try:
        keys = keymap(_table(found.get("keys", {}), "keys"))
    except KeyConflict as error:
        raise BadSettings(f"keys: {error}") from None
    filters = _table(found.get("filters", {}), "filters")
    for name, wanted in filters.items():
        _filter(wanted, f"filters.{name}")
    return ScreenSettings(keys, theme, tuple(columns), filters, tuple(_colours(found.get("colours", []))))


def _colours(rules: Any) -> list[ColourRule]:
    roles = [role for role in get_args(Role) if role]
    found: list[ColourRule] = []
    for i, rule in enumerate(rules if isinstance(rules, list) else [rules], 1):
        if not isinstance(rule, dict) or set(rule) != {"filter", "role"}:
            raise BadSettings(f"colour rule {i} needs a filter and a role, and nothing else")
        if rule["role"] not in roles:
            raise BadSettings(f"colour rule {i}: there is no role {rule['role']!r}; there are {', '.join(roles)}")
        _filter(rule["filter"], f"colour rule {i}")
        found.append(ColourRule(rule["filter"], rule["role"]))
    return found


def _filter(text: Any, where: str) -> None:
    from ....decoder.filter import FilterError, compile

    try:
        compile(text if isinstance(text, str) else "")
    except FilterError as error:
        raise BadSettings(f"{where}: {error}") from None


def _table(found: Any, name: str) -> dict[str, str]:
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise BadSettings(f"{name} must be a table of strings")
    return found


def _texts(found: Any, name: str) -> list[str]:
    if not isinstance(found, list) or not all(isinstance(value, str) for value in found):
        raise BadSettings(f"{name} must be a list of strings")
    return found
