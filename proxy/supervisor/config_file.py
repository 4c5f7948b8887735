"""The config file of the proxy: TOML, several clusters in one process. What keys there are is the caller's business.

    idle-seconds = 600                 # outside of [[cluster]]: for all of them

    [[cluster]]
    name = "orders"
    broker = "10.0.0.1:9092"
    listen = "127.0.0.1:19092"

Keys are the options of `barnabas proxy` without their dashes in front. Paths are relative to the file. Every error
names file, line and column, and the nearest key.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import BarnabasError

CLUSTER = "cluster"
PLUGIN = "plugin"
_HEADER = re.compile(r"\s*(\[\[?)\s*([^\]]*?)\s*\]")
_KEY = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*=""")
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_WORDS = {
    bool: "true or false",
    str: "a string in quotes",
    Path: "a path in quotes",
    int: "a whole number",
    float: "a number",
    list: "a string or a list of strings",
}


class ConfigError(BarnabasError):
    """What is wrong in a config file: one line that begins with file, line and column."""


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """One cluster of the file. `values`: by key as in the file's documentation, paths resolved. `line`: where it
    begins, for errors found later."""

    name: str
    values: Mapping[str, Any]
    path: Path
    line: int

    def wrong(self, text: str) -> ConfigError:
        """What is wrong with it as a whole."""
        return ConfigError(f"{self.path}:{self.line}: cluster {self.name!r}: {text}")


class _Places:
    """Where tables and keys are in the text, which tomllib does not report."""

    def __init__(self, text: str) -> None:
        self.tables: list[int] = []
        """Line of every [[cluster]]."""
        self._keys: dict[tuple[int, str], tuple[int, int]] = {}
        table = -1
        within = ""  # the quotes of a text over several lines
        for number, line in enumerate(text.splitlines(), 1):
            if within:
                within = "" if within in line else within
                continue
            header = _HEADER.match(line)
            if header is not None:
                if header[1] == "[[" and header[2].strip("\"'") == CLUSTER:
                    self.tables.append(number)
                    table = len(self.tables) - 1
                else:
                    self._keys.setdefault((-1, header[2].split(".")[0].strip("\"'")), (number, header.start(2) + 1))
                continue
            key = _KEY.match(line)
            if key is not None:
                name = next(group for group in key.groups() if group is not None)
                column = len(line) - len(line.lstrip()) + 1
                self._keys.setdefault((table, name), (number, column))
            for quotes in ('"""', "'''"):
                if line.count(quotes) % 2:
                    within = quotes

    def of(self, table: int, key: str) -> str:
        """`line:column` of a key; table -1: outside of every cluster."""
        line, column = self._keys.get((table, key), (self.tables[table] if 0 <= table < len(self.tables) else 1, 1))
        return f"{line}:{column}"


def read(path: Path, keys: Mapping[str, type]) -> list[ClusterConfig]:
    """The clusters of a file. `keys`: what a cluster may have, besides its name, and of which kind: bool, str, Path,
    int, float, or list (of texts). ConfigError for everything that is wrong, OSError if the file cannot be read."""
    try:
        text = path.read_bytes().decode()
        table = tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: this is not UTF-8 text (byte {error.start})") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(_syntax(path, str(error))) from None
    places = _Places(text)
    found = table.pop(CLUSTER, [])
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise ConfigError(f"{path}:{places.of(-1, CLUSTER)}: clusters are written with two brackets: [[{CLUSTER}]]")
    for_all = _checked(path, places, -1, table, keys)
    if not found:
        raise ConfigError(f"{path}: there is no cluster: add one that begins with [[{CLUSTER}]]")
    clusters: list[ClusterConfig] = []
    lines: dict[str, int] = {}
    for index, values in enumerate(found):
        line = places.tables[index] if index < len(places.tables) else 1
        name = values.pop("name", None)
        if name is None:
            raise ConfigError(f'{path}:{line}:1: this cluster has no name: add name = "..."')
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise ConfigError(
                f"{path}:{places.of(index, 'name')}: a name may contain letters, digits, '.', '_' and '-', and must not begin "
                f"with '.' or '-', unlike {name!r}"
            )
        if name in lines:
            raise ConfigError(
                f"{path}:{places.of(index, 'name')}: the cluster of line {lines[name]} is also named {name!r}"
            )
        lines[name] = line
        clusters.append(ClusterConfig(name, for_all | _checked(path, places, index, values, keys), path, line))
    for key in ("listen", "record", "flight"):
        _alone(clusters, key)
    return clusters


def _checked(
    path: Path, places: _Places, table: int, values: Mapping[str, Any], keys: Mapping[str, type]
) -> dict[str, Any]:
    """The values of one table under the names of `keys`; ConfigError for unknown keys and other kinds of values."""
    checked: dict[str, Any] = {}
    for written, value in values.items():
        key = written.replace("_", "-")
        where = f"{path}:{places.of(table, written)}"
        if key == "name" and table < 0:
            raise ConfigError(f"{where}: a name belongs to a cluster: put it after [[{CLUSTER}]]")
        kind = keys.get(key)
        if kind is None:
            near = difflib.get_close_matches(key, ["name", CLUSTER, *keys], 1, 0.5)
            hint = f"did you mean {near[0]!r}?" if near else "`barnabas config example` shows them all"
            raise ConfigError(f"{where}: there is no key {written!r}: {hint}")
        wanted = str if kind is Path else (int, float) if kind is float else kind
        fits = isinstance(value, wanted) and (kind is bool or not isinstance(value, bool))
        if kind is list and isinstance(value, str):
            value, fits = [value], True
        elif kind is list and fits:
            fits = all(isinstance(each, str) for each in value)
        if not fits:
            raise ConfigError(f"{where}: {written} must be {_WORDS[kind]}, not {value!r}")
        if key in checked:
            raise ConfigError(f"{where}: {key} is given twice, with '-' and with '_'")
        if key == PLUGIN:
            value = [_beside(path.parent, each) for each in value]
        checked[key] = path.parent / Path(value).expanduser() if kind is Path else value
    return checked


def _beside(folder: Path, plugin: str) -> str:
    """A plugin whose file is relative to the config file; one that is installed stays as it is."""
    place, question, settings = plugin.partition("?")
    if ".py" not in place and os.sep not in place:
        return plugin
    return f"{folder / Path(place).expanduser()}{question}{settings}"


def _alone(clusters: list[ClusterConfig], key: str) -> None:
    """No two clusters share an address or a directory."""
    seen: dict[Any, ClusterConfig] = {}
    for cluster in clusters:
        value = cluster.values.get(key)
        if value is None or (key == "listen" and str(value).endswith(":0")):
            continue
        other = seen.setdefault(value, cluster)
        if other is not cluster:
            raise cluster.wrong(f"{key} {str(value)!r} is also that of cluster {other.name!r}: each needs its own")


def _syntax(path: Path, message: str) -> str:
    """tomllib's words, with the place in front as everywhere here."""
    place = re.search(r" \(at line (\d+), column (\d+)\)$", message)
    if place is None:
        return f"{path}: {message.replace(' (at end of document)', ' at the end of the file').lower()}"
    return f"{path}:{place[1]}:{place[2]}: {message[: place.start()].lower()}"
