"""Files of what is accepted for now: findings and known bugs that ``--ignore`` leaves out, each with a reason."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ...safe import visible
from .failure import Failure
from .output import counted

if TYPE_CHECKING:
    from ....decoder.findings import Finding
    from ....plugins.conditions.input_value import InputValue

IgnoreOption = Annotated[
    Path | None,
    typer.Option("--ignore", help="Leave out what this YAML file lists: ids, each with a reason.", metavar="FILE"),
]
_KEYS = ("id", "client", "until", "why")


class IgnoredClient(NamedTuple):
    """Who an entry may be about: what `client` is compared with."""

    client_id: str
    software: str
    host: str


@dataclass(slots=True)
class IgnoreEntry:
    """One entry. `client`: a pattern for client ids, software or hosts; "" for every client. `until`: its last day."""

    id: str
    client: str
    until: datetime.date | None
    why: str
    line: int
    used: bool = False

    def covers(self, client: IgnoredClient | None) -> bool:
        """Whether it is about this client (None: not about a client)."""
        return not self.client or (client is not None and any(fnmatchcase(text, self.client) for text in client))


class IgnoreFile:
    """The entries of a file. Raises Failure with the line of what is wrong in it. Entries end after their last day."""

    def __init__(self, path: Path, today: datetime.date) -> None:
        self._path, self._today = path, today
        self._entries = _read(path)

    def covers(self, ids: Iterable[str], clients: Iterable[IgnoredClient]) -> bool:
        """Whether what has these ids is to be left out: for each of its clients there is an entry."""
        wanted = set(ids)
        entries = [entry for entry in self._entries if entry.id in wanted and not self._ended(entry)]
        everyone: list[IgnoredClient | None] = [*clients] or [None]
        covering = [next((entry for entry in entries if entry.covers(client)), None) for client in everyone]
        if None in covering:
            return False
        for entry in covering:
            if entry is not None:
                entry.used = True
        return True

    def without(self, findings: Iterable[Finding]) -> list[Finding]:
        """The findings that no entry leaves out."""
        from ....decoder.findings.known_bugs import KNOWN_BUGS, clients_of

        def ignored(finding: Finding) -> bool:
            ids = [finding.id, *finding.about.get(KNOWN_BUGS, ())]
            return self.covers(ids, map(_client, filter(_is_client, clients_of(finding))))

        return [finding for finding in findings if not ignored(finding)]

    def _ended(self, entry: IgnoreEntry) -> bool:
        return entry.until is not None and entry.until < self._today

    def notes(self, left_out: int, what: str = "finding") -> list[str]:
        """How much was left out, and which entries count no more or matched nothing."""
        where = visible(str(self._path))
        notes = [f"{counted(left_out, what)} left out by {where}"] if left_out else []
        for entry in self._entries:
            place = f"{where}:{entry.line}: {visible(entry.id)}"
            if self._ended(entry):
                notes.append(f"{place} counts again since {entry.until}: {visible(entry.why)}")
            elif not entry.used:
                notes.append(f"{place} matches nothing here")
        return notes


def ignoring(path: Path | None) -> IgnoreFile | None:
    """The file of ``--ignore``, as of today."""
    return None if path is None else IgnoreFile(path, datetime.date.today())


def _is_client(about: Mapping[str, Any]) -> bool:
    return about.get("client_id") is not None or about.get("client") is not None


def _client(about: Mapping[str, Any]) -> IgnoredClient:
    host = str(about.get("client") or "").rpartition(":")[0].strip("[]")
    return IgnoredClient(str(about.get("client_id") or ""), str(about.get("software") or ""), host)


def _read(path: Path) -> list[IgnoreEntry]:
    from ....plugins.conditions.input_value import InvalidInput
    from ....plugins.rules.rules_file import RuleError, read

    try:
        text = read(path)
    except RuleError as error:
        raise Failure(f"--ignore {visible(str(error))}") from None
    try:
        if text.root.value is None:
            text.root.invalid("is empty; it must start with 'ignore:' and a list")
        fields = text.root.mapping(("ignore",), "an ignore file")
        if "ignore" not in fields:
            text.root.invalid("has no 'ignore:'")
        return [_entry(each) for each in fields["ignore"].list("ignore")]
    except InvalidInput as error:
        raise Failure(f"--ignore {visible(str(text.error(error)))}") from None


def _entry(given: InputValue) -> IgnoreEntry:
    fields = given.mapping(_KEYS, "an entry")
    for name in ("id", "why"):
        if name not in fields:
            given.invalid(f"an entry needs {name!r}")
    until = None
    if "until" in fields:
        try:
            until = datetime.date.fromisoformat(fields["until"].text("until"))
        except ValueError:
            fields["until"].invalid("'until' must be a date such as 2027-03-01")
    client = fields["client"].text("client") if "client" in fields else ""
    place = fields["id"].place or given.place or (1, 1)
    return IgnoreEntry(fields["id"].text("id"), client, until, fields["why"].text("why"), place[0])
