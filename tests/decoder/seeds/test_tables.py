"""The tables of the two protocol pages, error codes and api keys, against the texts and against `decoder.schema.facts`.

``NNN-errors.txt`` and ``NNN-api-keys.txt`` hold a page's table; what differs from today's facts is listed here, code by
code, with the reason.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest
from barnabas.decoder.schema import facts
from barnabas.decoder.schema.facts import ErrorFact

HERE = Path(__file__).parent
TEXTS = HERE.parents[3] / "shared" / "reference" / "seeds"
DOCUMENT = HERE.parents[2] / "docs" / "seeds.md"
PAGES = {"002": (-1, 32, 17), "003": (-1, 55, 34)}  # first and last error code, number of api keys


class Change(NamedTuple):
    """A difference between a page and today: what the page has, what holds now, why."""

    code: int
    theirs: str
    ours: str
    why: str


SERVER_ERROR = Change(
    -1, "UNKNOWN", "UNKNOWN_SERVER_ERROR", "KAFKA-4763 (KIP-112): no longer used for errors unknown to the client"
)
NOT_LEADER = Change(
    6, "NOT_LEADER_FOR_PARTITION", "NOT_LEADER_OR_FOLLOWER", "KAFKA-10223 (2.6): followers also serve fetches"
)
REPLICA = Change(9, "final", "retriable", "KAFKA-10223 (2.6): always transient, now marked as such")
COORDINATORS = "KIP-98 (0.11): transactions also have a coordinator"
ERRORS = {
    "002": [
        SERVER_ERROR,
        NOT_LEADER,
        REPLICA,
        Change(14, "GROUP_LOAD_IN_PROGRESS", "COORDINATOR_LOAD_IN_PROGRESS", COORDINATORS),
        Change(15, "GROUP_COORDINATOR_NOT_AVAILABLE", "COORDINATOR_NOT_AVAILABLE", COORDINATORS),
        Change(16, "NOT_COORDINATOR_FOR_GROUP", "NOT_COORDINATOR", COORDINATORS),
    ],
    "003": [
        SERVER_ERROR,
        NOT_LEADER,
        REPLICA,
        Change(46, "retriable", "final", "the batch is already in the log; retrying will not help"),
        Change(51, "final", "retriable", "the previous transaction is still completing"),
    ],
}
OFFSETS = Change(2, "Offsets", "ListOffsets", "renamed after 0.11")
API_KEYS = {
    "002": [OFFSETS, Change(10, "GroupCoordinator", "FindCoordinator", COORDINATORS)],
    "003": [OFFSETS],
}


def text_of(seed: str) -> str:
    if not TEXTS.is_dir():
        pytest.skip("the seed texts are not on this machine")
    (path,) = TEXTS.glob(f"{seed}_*.txt")
    return path.read_text("utf-8")


def errors(seed: str) -> dict[int, ErrorFact]:
    rows = [line.split() for line in lines(f"{seed}-errors.txt")]
    assert all(row[2:] in ([], ["retriable"]) for row in rows)
    table = {int(row[0]): ErrorFact(int(row[0]), row[1], len(row) == 3) for row in rows}
    assert len(table) == len(rows)
    return table


def api_keys(seed: str) -> dict[int, str]:
    return {int(key): name for key, name in map(str.split, lines(f"{seed}-api-keys.txt"))}


def lines(name: str) -> list[str]:
    return [line for line in (HERE / "texts" / name).read_text("utf-8").splitlines() if line and not line.startswith("#")]


# The 2016 page's rows are HTML cells, the 0.11 page's are separated by bars; its api keys stand in the headings.
ERROR = re.compile(r"^(?:<td>)?([A-Z_]+)(?:</td><td>| \| )(-?\d+)(?:</td><td>| \| )(True|False)(?:</td>| \|)", re.M)
KEY = {
    "002": re.compile(r"^<td>(\w+)</td><td>(\d+)</td></tr>", re.M),
    "003": re.compile(r"^(\w+) API \(Key: (\d+)\):", re.M),
}
HEADING = re.compile(r"(\w+) API \(Key: (\d+)\):")


@pytest.mark.parametrize("seed", PAGES)
def test_every_error_code_of_the_page_is_transcribed(seed: str) -> None:
    first, last, _ = PAGES[seed]
    found = [ErrorFact(int(code), name, retriable == "True") for name, code, retriable in ERROR.findall(text_of(seed))]
    assert found == list(errors(seed).values())
    assert [fact.code for fact in found] == list(range(first, last + 1))


@pytest.mark.parametrize("seed", PAGES)
def test_every_api_key_of_the_page_is_transcribed(seed: str) -> None:
    found = {int(key): name for name, key in KEY[seed].findall(text_of(seed))}
    assert found == api_keys(seed)
    assert found == {int(key): name for name, key in HEADING.findall(text_of(seed))}
    assert list(found) == list(range(PAGES[seed][2]))


@pytest.mark.parametrize("seed", PAGES)
def test_error_codes_hold_but_for_the_listed_changes(seed: str) -> None:
    found = []
    for code, theirs in errors(seed).items():
        ours = facts.errors()[code]
        if theirs.name != ours.name:
            found.append((code, theirs.name, ours.name))
        if theirs.retriable != ours.retriable:
            found.append((code, how(theirs), how(ours)))
    assert found == [change[:3] for change in ERRORS[seed]]


def how(fact: ErrorFact) -> str:
    return "retriable" if fact.retriable else "final"


@pytest.mark.parametrize("seed", PAGES)
def test_api_keys_hold_but_for_the_listed_renames(seed: str) -> None:
    found = [(k, name, facts.api_name(k)) for k, name in api_keys(seed).items() if name != facts.api_name(k)]
    assert found == [change[:3] for change in API_KEYS[seed]]


@pytest.mark.parametrize("seed", PAGES)
def test_the_document_explains_every_change(seed: str) -> None:
    text = DOCUMENT.read_text("utf-8")
    for change in ERRORS[seed] + API_KEYS[seed]:
        pages = ", ".join(page for page in PAGES if change in ERRORS[page] + API_KEYS[page])
        row = f"| {pages} | {change.code} | `{change.theirs}` → `{change.ours}` | {change.why} |"
        assert row in text, row


def test_no_code_of_a_page_is_lost() -> None:
    """The 0.11 page continues the 2016 page, and today's table continues both without a gap."""
    older, newer = errors("002"), errors("003")
    assert set(older) < set(newer) < set(facts.errors())
    codes = sorted(facts.errors())
    assert codes == list(range(codes[0], codes[-1] + 1))
