"""Published bugs of client libraries, and which versions have them.

The facts are in ``client_bugs/``, a file per client, each bug with its source. A client that is not there can
have bugs, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources
from typing import NamedTuple

from . import clients
from .explanations.blocks import BlockEntry, BlockError, NotationRule, TextBlock, parse

SEVERITIES = ("info", "low", "medium", "high")
_ONCE = NotationRule(needed=True)
_RULES = {
    "versions": NotationRule(needed=True, many=True), "severity": _ONCE, "what": _ONCE, "wire": _ONCE,
    "finding": NotationRule(many=True, argument="must"), "source": _ONCE,
}  # fmt: skip
_TABLE = {"date": _ONCE, "source": _ONCE, "newest": _ONCE, "own": NotationRule()}
_HEAD = "table"
_DATE = re.compile(r"20\d\d-[01]\d-[0-3]\d")
_VERSIONS = re.compile(r"(any|\d+(?:\.\d+)*) (?:until (\d+(?:\.\d+)*)|on)")
_CONDITION = re.compile(r"([a-z_]+)=(\S+)")
_NUMBERS = re.compile(r"v?(\d+(?:\.\d+)*)")
_PRE_RELEASE = re.compile(r"[-_.]?(?:rc|pre|alpha|beta|snapshot|dev|a\d|b\d)", re.I)
_BETWEEN = re.compile(r"(\d+\.\d+) to (\d+\.\d+)")
_LAST = 1 << 30
"""As the number of a patch release: later than any."""
_CONFLUENT = re.compile(r"v?(\d+)\.(\d+)\.\d+(?:-\d+)?-c[ce]s?\b")
_BEFORE_7 = {5: 0, 6: 6}
"""Confluent Platform 5.0 is Kafka 2.0, 6.0 is 2.6; from 7.0 (3.0) on, the minor numbers are the same."""


class Status(StrEnum):
    """What a version means for a bug."""

    PRESENT = "present"
    FIXED = "fixed"
    NOT_YET = "not yet"
    """It is older than the bug."""
    UNKNOWN = "unknown"
    """The version is not known, or not exactly enough."""


class VersionOrder(NamedTuple):
    """Where a version stands among others of its client: pre-releases before their release."""

    numbers: tuple[int, ...]
    released: bool


class AffectedVersions(NamedTuple):
    """Versions with a bug: from `first` on ("" for all) up to before `fixed`, or where no release had fixed it ("") up to
    `newest`, the newest release of the table. Of later ones nothing is known."""

    first: str
    fixed: str
    newest: str


class FindingPattern(NamedTuple):
    """A finding that is a bug's trace: the detector's id, and the values that `Finding.about` may have, by name."""

    finding: str
    conditions: Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class ClientBug:
    """A published bug. `client`: as the client names itself. `severity`: one of `SEVERITIES`."""

    id: str
    client: str
    affected: tuple[AffectedVersions, ...]
    severity: str
    what: str
    wire: str
    patterns: tuple[FindingPattern, ...]
    source: str

    def status(self, version: str) -> Status:
        """Whether a version of the client has it."""
        found = {self._status(each) for each in _possible(version)}
        return found.pop() if len(found) == 1 else Status.UNKNOWN

    def _status(self, version: VersionOrder) -> Status:
        later = False
        for each in self.affected:
            if not each.first or version >= version_order(each.first)._replace(released=False):
                if not each.fixed and version > version_order(each.newest):
                    return Status.UNKNOWN
                if not each.fixed or version < version_order(each.fixed):
                    return Status.PRESENT
                later = True
        return Status.FIXED if later else Status.NOT_YET

    def fixed_for(self, version: str) -> str:
        """The first release after this version that has it no more; "" if there is none."""
        after = _possible(version)
        fixes = [
            each.fixed
            for each in self.affected
            if each.fixed and all(order < version_order(each.fixed) for order in after)
        ]
        return min(fixes, key=version_order, default="") if after else self.fixed

    @property
    def fixed(self) -> str:
        """The last release that fixed a branch; "" if a branch is not fixed."""
        if any(not each.fixed for each in self.affected):
            return ""
        return max((each.fixed for each in self.affected), key=version_order)


class BugTable(NamedTuple):
    """The bugs of a client. `date`: up to when its sources were read, as ``YYYY-MM-DD``. `newest`: the newest release
    then. `own`: the oldest release that sends its own version; what older ones send is the version of the program that
    uses them. "" if all do."""

    client: str
    date: str
    source: str
    newest: str
    own: str
    bugs: tuple[ClientBug, ...]

    def known_version(self, sent: str) -> str:
        """The library's version, from the one that was sent; "" if that is not the library's."""
        if not self.own:
            return sent
        oldest = version_order(self.own)
        return sent if oldest <= version_order(sent) < VersionOrder((oldest.numbers[0] + 1,), False) else ""


class NamedVersion(NamedTuple):
    """A client of the table and its version; "" where it is not known. `guessed`: the client, by its client id."""

    client: str
    version: str
    guessed: bool = False


def version_order(text: str) -> VersionOrder:
    """For comparing versions of one client: 2.9.1 < 2.10.0-RC1 < 2.10.0 = 2.10."""
    match = _NUMBERS.match(text)
    if match is None:
        return VersionOrder((), False)
    numbers = list(map(int, match[1].split(".")))
    while numbers and not numbers[-1]:
        del numbers[-1]
    return VersionOrder(tuple(numbers), _PRE_RELEASE.match(text, match.end()) is None)


def _possible(version: str) -> tuple[VersionOrder, ...]:
    """A version, or the oldest and the newest that it can be; empty if it is not known."""
    between = _BETWEEN.fullmatch(version)
    if between is not None:
        return version_order(between[1]), version_order(f"{between[2]}.{_LAST}")
    platform = _CONFLUENT.match(version)
    if platform is None:
        order = version_order(version)
        return (order,) if order.numbers or order.released else ()
    # The patch releases of Confluent's builds are its own.
    major, minor = int(platform[1]), int(platform[2])
    numbers = (2, _BEFORE_7[major] + minor) if major in _BEFORE_7 else (major - 4, minor)
    release = ".".join(map(str, numbers))
    return version_order(release), version_order(f"{release}.{_LAST}")


def named(
    software_name: str, software_version: str, client_id: str | None, guess: str = ""
) -> tuple[NamedVersion, ...]:
    """The libraries that a client consists of: itself, and the one that it wraps; empty if nothing is known.

    Clients that send no name are known by their default client id; some put their version in it. `guess`: the version of
    one that does not, such as ``2.1 to 2.3``.
    """
    known = clients.software(software_name, software_version, client_id)
    if not software_name:
        if known is None:
            return ()
        match = re.fullmatch(re.escape(known.client.name) + r"-(\d+(?:\.\d+)+\S*)", client_id or "")
        return (NamedVersion(known.client.name, match[1] if match else guess, True),)
    table = tables().get(software_name)
    found = [
        NamedVersion(software_name, table.known_version(software_version) if table is not None else software_version)
    ]
    if known is not None and known.client.name != software_name:
        found.append(NamedVersion(known.client.name, known.version))
    return tuple(found)


def bugs_of(client: str) -> tuple[ClientBug, ...]:
    """The known bugs of a client by the name it sends; empty if the table does not have it."""
    table = tables().get(client)
    return table.bugs if table is not None else ()


class BugStatus(NamedTuple):
    """What the version of a client means for one of its known bugs."""

    bug: ClientBug
    version: str
    status: Status


def statuses(software_name: str, software_version: str, client_id: str | None, guess: str = "") -> list[BugStatus]:
    """All known bugs of a client and of what it wraps, and whether its version has them; the worst first."""
    found = [
        BugStatus(bug, each.version, bug.status(each.version))
        for each in named(software_name, software_version, client_id, guess)
        for bug in bugs_of(each.client)
    ]
    return sorted(found, key=lambda each: -SEVERITIES.index(each.bug.severity))


def bug_tables_before(software_name: str, software_version: str, client_id: str | None) -> list[BugTable]:
    """The tables that end before the version of this client, or of what it wraps."""
    return [
        table
        for each in named(software_name, software_version, client_id)
        if (table := tables().get(each.client)) is not None
        and (order := version_order(each.version)).numbers
        and _CONFLUENT.match(each.version) is None
        and _BETWEEN.match(each.version) is None
        and order > version_order(table.newest)
    ]


@cache
def tables() -> dict[str, BugTable]:
    """The table, by client."""
    folder = resources.files(__package__).joinpath("client_bugs")
    files = sorted(file.name for file in folder.iterdir() if file.name.endswith(".txt"))
    return {name.removesuffix(".txt"): read(folder.joinpath(name).read_text("utf-8"), name) for name in files}


def read(text: str, source: str) -> BugTable:
    """One file of the table. Raises `BlockError` for what is wrong in it."""
    client = source.removesuffix(".txt")
    optional = {name: rule._replace(needed=False) for name, rule in (_RULES | _TABLE).items()}
    head, *blocks = parse(text, source, optional)
    if head.name != _HEAD:
        raise BlockError(source, head.line, 1, f"the first block is not {_HEAD}")
    _check(head, _TABLE)
    date = head.text("date")
    if not _DATE.fullmatch(date):
        raise BlockError(source, head.all("date")[0].line, 3, f"{date!r} is not a date")
    newest = head.text("newest")
    found = tuple(_bug(block, client, newest) for block in blocks)
    return BugTable(client, date, head.text("source"), newest, head.text("own"), found)


def _check(block: TextBlock, rules: Mapping[str, NotationRule]) -> None:
    for entry in block.entries:
        if entry.field not in rules:
            raise BlockError(block.source, entry.line, 3, f"{block.name} takes no {entry.field}")
    for name, rule in rules.items():
        if rule.needed and not block.all(name):
            raise BlockError(block.source, block.line, 1, f"{block.name} has no {name}")


def _bug(block: TextBlock, client: str, newest: str) -> ClientBug:
    _check(block, _RULES)
    severity = block.all("severity")[0]
    if severity.text not in SEVERITIES:
        raise BlockError(block.source, severity.line, 3, f"{severity.text!r} is not a severity")
    affected = tuple(_versions(entry, block, newest) for entry in block.all("versions"))
    patterns = tuple(_pattern(entry, block) for entry in block.all("finding"))
    return ClientBug(
        block.name,
        client,
        affected,
        severity.text,
        block.text("what"),
        block.text("wire"),
        patterns,
        block.text("source"),
    )


def _versions(entry: BlockEntry, block: TextBlock, newest: str) -> AffectedVersions:
    match = _VERSIONS.fullmatch(entry.text)
    if match is None:
        raise BlockError(
            block.source, entry.line, 3, f"{entry.text!r} is not 'FIRST until FIXED', 'any until FIXED' or 'FIRST on'"
        )
    first, fixed = "" if match[1] == "any" else match[1], match[2] or ""
    if first and fixed and version_order(first) >= version_order(fixed):
        raise BlockError(block.source, entry.line, 3, f"{first} is not before {fixed}")
    return AffectedVersions(first, fixed, newest)


def _pattern(entry: BlockEntry, block: TextBlock) -> FindingPattern:
    conditions = {}
    for word in entry.text.split() if entry.text != "-" else ():
        match = _CONDITION.fullmatch(word)
        if match is None:
            raise BlockError(block.source, entry.line, 3, f"{word!r} is not NAME=VALUE")
        conditions[match[1]] = frozenset(match[2].split("|"))
    return FindingPattern(entry.argument or "", conditions)
