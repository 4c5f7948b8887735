"""Parts of captures, and captures of parts: every exchange as it was."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from barnabas.captures import open_capture
from barnabas.captures.transform.cut import Cut, CutSelection
from barnabas.captures.transform.merge import Merge, MergeInput
from barnabas.captures.transform.write import TargetExists, Writer, replacing
from barnabas.decoder import Exchange
from barnabas.decoder.connection.events import Closed, Opened
from barnabas.decoder.filter import compile
from traffic.packets import pcap_file, traffic

from ..event_words import read_events

CAPTURES = Path(__file__).parents[2] / "decoder" / "findings" / "captures"
GROUPS = CAPTURES / "groups-killed.pcapng"
SECOND = 10**9


def cut(path: Path, out: Path, **part: Any) -> Cut:
    found = Cut(path, CutSelection(**part))
    writer = Writer(out, redact=False)
    for event in found.events():
        writer.write(event)
    writer.close()
    assert writer.faults == []
    return found


def merge(paths: Iterable[Path], out: Path, shifts: Iterable[int] = ()) -> Merge:
    paths = list(paths)
    shifts = list(shifts) or [0] * len(paths)
    merged = Merge([MergeInput(path, by) for path, by in zip(paths, shifts, strict=True)])
    writer = Writer(out, redact=False)
    for source, event in merged.events():
        writer.write(event, source)
    writer.close()
    assert writer.faults == []
    return merged


def content(exchange: Exchange, connection: bool = True) -> tuple[Any, ...]:
    """Everything of an exchange but its place in a file."""
    notes = tuple(exchange.marks.notes)
    legs = tuple(leg and leg.frame for leg in (exchange.marks.broker_request, exchange.marks.broker_response))
    ends = (exchange.connection, exchange.client) if connection else ()
    return (
        exchange.request, exchange.request_time_ns, exchange.response, exchange.response_time_ns, exchange.api_key,
        exchange.api_version, exchange.correlation_id, exchange.broker, str(exchange.state), notes, legs, *ends,
    )  # fmt: skip


def exchanges(path: Path, connection: bool = True) -> list[tuple[Any, ...]]:
    with open_capture(path) as capture:
        assert capture.verify() == []
        return [content(exchange, connection) for exchange in capture.exchanges()]


def test_a_whole_capture_is_cut_as_it_is(tmp_path: Path) -> None:
    found = cut(GROUPS, tmp_path / "out")
    assert exchanges(tmp_path / "out") == exchanges(GROUPS)
    assert found.exchanges == found.of_exchanges == len(exchanges(GROUPS))
    beside = [[h for h in read_events(path) if isinstance(h, Opened | Closed)] for path in (GROUPS, tmp_path / "out")]
    assert beside[0] == beside[1]


@pytest.mark.parametrize("name", sorted(path.name for path in CAPTURES.glob("*.pcapng"))[3::12])
def test_recordings_of_every_kind_are_copied_as_they_are(name: str, tmp_path: Path) -> None:
    cut(CAPTURES / name, tmp_path / "out")
    assert exchanges(tmp_path / "out") == exchanges(CAPTURES / name)


@pytest.mark.parametrize(
    "text", ["api == JoinGroup", "err != 0", "latency > 20ms", "group == billing", "size.resp > 500"]
)
def test_cut_by_a_filter(text: str, tmp_path: Path) -> None:
    wanted = compile(text)
    cut(GROUPS, tmp_path / "out", wanted=wanted, handshakes=False)
    with open_capture(GROUPS) as capture:
        expected = [content(exchange) for exchange in capture.exchanges() if wanted(exchange)]
    assert exchanges(tmp_path / "out") == expected


def test_handshakes_go_along(tmp_path: Path) -> None:
    found = cut(GROUPS, tmp_path / "out", wanted=compile("api == JoinGroup"))
    with open_capture(tmp_path / "out") as capture:
        kept = list(capture.exchanges())
    connections = {e.connection for e in kept if e.api == "JoinGroup"}
    assert {e.connection for e in kept} == connections
    assert {e.connection for e in kept if e.api == "ApiVersions"} == connections
    assert {e.api for e in kept} == {"JoinGroup", "ApiVersions"}
    assert found.exchanges == sum(e.api == "JoinGroup" for e in kept)
    offered = {e.connection: e.about for e in kept}
    assert set(offered) == connections


def test_cut_by_time_connection_and_number(tmp_path: Path) -> None:
    with open_capture(GROUPS) as capture:
        rows = list(capture.rows())
        begun = min(row.time_ns for row in rows)
        everything = {(row.connection, row.correlation_id, row.time_ns) for row in rows}
        numbered = {(r.connection, r.correlation_id, r.time_ns) for r in rows[9:20]}
    first = next(h.time_ns for h in read_events(GROUPS) if isinstance(h, Opened))
    cases: list[tuple[dict[str, Any], set[tuple[int, int, int]]]] = [
        ({"numbers": (10, 20)}, numbered),
        ({"connections": frozenset({3, 5})}, {e for e in everything if e[0] in (3, 5)}),
        (
            {"start_ns": begun + SECOND, "end_ns": begun + 3 * SECOND},
            {e for e in everything if SECOND <= e[2] - begun <= 3 * SECOND},
        ),
        ({"end_ns": 2 * SECOND}, {e for e in everything if e[2] - first <= 2 * SECOND}),
    ]
    for i, (part, expected) in enumerate(cases):
        cut(GROUPS, tmp_path / str(i), handshakes=False, **part)
        with open_capture(tmp_path / str(i)) as capture:
            assert {(r.connection, r.correlation_id, r.time_ns) for r in capture.rows()} == expected
            assert expected


@pytest.mark.parametrize("how", ["as sent", "lost", "late"])
def test_foreign_captures(how: str, tmp_path: Path) -> None:
    foreign = pcap_file(tmp_path, traffic(11, how))
    cut(foreign, tmp_path / "out")
    assert sorted(map(str, exchanges(tmp_path / "out"))) == sorted(map(str, exchanges(foreign)))


def test_parts_make_the_whole_again(tmp_path: Path) -> None:
    """Connections of odd and of even numbers, put together by time."""
    with open_capture(GROUPS) as capture:
        numbers = {row.connection for row in capture.rows()}
    for name, rest in (("even", 0), ("odd", 1)):
        cut(GROUPS, tmp_path / name, connections=frozenset(n for n in numbers if n % 2 == rest))
    merged = merge([tmp_path / "even", tmp_path / "odd"], tmp_path / "out")
    assert merged.renamed == 0
    with open_capture(GROUPS) as before, open_capture(tmp_path / "out") as after:
        columns = [
            name
            for name in before.rows()[0]._fields
            if name not in ("number", "segment", "request_offset", "response_offset")
        ]
        for old, new in zip(before.rows(), after.rows(), strict=True):
            assert [getattr(old, name) for name in columns] == [getattr(new, name) for name in columns]
    assert exchanges(tmp_path / "out") == exchanges(GROUPS)


def test_a_capture_split_in_time(tmp_path: Path) -> None:
    """A connection that is in both parts stays two, and nothing of it is lost."""
    cut(GROUPS, tmp_path / "a", end_ns=2 * SECOND, handshakes=False)
    cut(GROUPS, tmp_path / "b", start_ns=2 * SECOND + 1, handshakes=False)
    merged = merge([tmp_path / "a", tmp_path / "b"], tmp_path / "out")
    assert merged.renamed > 0
    assert sorted(map(str, exchanges(tmp_path / "out", False))) == sorted(map(str, exchanges(GROUPS, False)))


def test_the_same_ends_stay_apart(tmp_path: Path) -> None:
    merged = merge([GROUPS, GROUPS], tmp_path / "out")
    once = exchanges(GROUPS, False)
    twice = exchanges(tmp_path / "out", False)
    assert sorted(map(str, twice)) == sorted(map(str, once * 2))
    with open_capture(tmp_path / "out") as capture:
        clients = {row.client for row in capture.rows()}
        connections = {row.connection for row in capture.rows()}
    with open_capture(GROUPS) as capture:
        assert len(connections) == 2 * len({row.connection for row in capture.rows()})
        assert len(clients) == 2 * len({row.client for row in capture.rows()})
    assert merged.renamed == len([h for h in read_events(GROUPS) if isinstance(h, Opened)])


def test_clocks_are_shifted(tmp_path: Path) -> None:
    other = CAPTURES / "fetching-idle-connection.pcapng"
    merge([GROUPS, other], tmp_path / "out", [0, -1500 * 10**6])
    by = 1500 * 10**6
    expected = sorted(
        [(e[0], e[1], e[3]) for e in exchanges(GROUPS)]
        + [(e[0], e[1] and e[1] - by, e[3] and e[3] - by) for e in exchanges(other)],
        key=str,
    )
    assert sorted([(e[0], e[1], e[3]) for e in exchanges(tmp_path / "out")], key=str) == expected
    begun = {h.time_ns for h in read_events(tmp_path / "out") if isinstance(h, Opened)}
    assert {h.time_ns - by for h in read_events(other) if isinstance(h, Opened)} <= begun


def test_merged_events_are_in_order_of_time(tmp_path: Path) -> None:
    merge(
        [GROUPS, CAPTURES / "groups-storm.pcapng"] if (CAPTURES / "groups-storm.pcapng").exists() else [GROUPS],
        tmp_path / "out",
    )
    times = [h.time_ns for h in read_events(tmp_path / "out") if isinstance(h, Opened)]
    assert times == sorted(times)


def test_a_result_appears_only_when_it_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "out"

    def interrupted() -> None:
        with replacing(target) as place:
            (place / "x.pcapng").write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []
    cut(GROUPS, tmp_path / "old")
    with pytest.raises(TargetExists, match="--force"), replacing(tmp_path / "old"):
        pass
    before = exchanges(tmp_path / "old")
    with pytest.raises(ValueError, match="no"), replacing(tmp_path / "old", force=True):
        raise ValueError("no")
    assert exchanges(tmp_path / "old") == before
    with replacing(tmp_path / "old", force=True) as place:
        cut(GROUPS, place, numbers=(1, 5))
    assert len(exchanges(tmp_path / "old")) == 5
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_nothing_but_a_recording_is_replaced(tmp_path: Path) -> None:
    target = tmp_path / "photos"
    target.mkdir()
    (target / "holiday.jpg").write_bytes(b"x")
    with pytest.raises(TargetExists, match=r"holiday\.jpg"), replacing(target, force=True):
        pass
    (tmp_path / "file.pcapng").mkdir()
    with pytest.raises(TargetExists), replacing(tmp_path / "file.pcapng", force=True):
        pass
    assert (target / "holiday.jpg").exists()
