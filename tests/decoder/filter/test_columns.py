"""Two ways to the same answer: the generated function over records, and the function over exchanges."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from datetime import UTC, timedelta, timezone
from zoneinfo import ZoneInfo

import numpy
import pytest
from barnabas.captures.reading.selection import IndexColumns
from barnabas.captures.recording.index import DTYPE, Head, Index, IndexEncoder
from barnabas.decoder import Exchange
from barnabas.decoder.connection.api_versions import PeerInfo
from barnabas.decoder.filter import compile
from barnabas.decoder.filter.language.fields import FIELDS
from barnabas.decoder.filter.language.parser import MAX_DEPTH
from barnabas.decoder.filter.values import MANY, ONE
from harness.generator import Generator
from harness.run.examples import times
from hypothesis import given
from traffic.generated_filters import ALL_TESTS, CONNECTION_TESTS, INDEX_TESTS, Sample, exchanges, filters

NOW = 1_700_000_000_000_000_000 + 10**14
ZONES = (None, UTC, timezone(timedelta(hours=5, minutes=30)), ZoneInfo("America/New_York"))


def indexed(found: Sequence[Exchange]) -> Index:
    """The index that a recorder would write of these exchanges."""
    encoder = IndexEncoder()
    ends: dict[int, tuple[str, str]] = {}
    for exchange in found:
        # A connection has one pair of ends.
        exchange.client, exchange.broker = ends.setdefault(exchange.connection, (exchange.client, exchange.broker))
    for number, (client, broker) in ends.items():
        encoder.connection(number, 0, client, broker)
    for exchange in found:
        if exchange.request is not None:
            exchange.marks.request_offset = 64
        if exchange.response is not None:
            exchange.marks.response_offset = 128
        encoder.exchange(exchange)
    return Index.from_encoder(encoder, Head(0, 0, "0" * 32, -1, -1, -1))


@pytest.fixture(scope="module")
def sample() -> list[Exchange]:
    return Sample(e for seed in (1, 2) for e in exchanges(Generator(seed), seed))


@pytest.fixture(scope="module")
def columns(sample: list[Exchange]) -> IndexColumns:
    return IndexColumns(indexed(sample))


@pytest.fixture(scope="module")
def connected(sample: Sample) -> tuple[Sample, IndexColumns]:
    """Exchanges of connections with known peer info."""
    columns = IndexColumns(indexed(sample), {})
    peer_infos: dict[int, PeerInfo] = {}
    for number in range(4):
        about = peer_infos[number] = PeerInfo()
        about.software_name, about.software_version = ("judge", "librdkafka", "", "a")[number], f"1.{number}"
        about.offered = {key: (key % 3, number + 3) for key in range(number, 95)} if number else None
    copies = Sample(copy.copy(exchange) for exchange in sample)
    for exchange in copies:
        exchange.about = peer_infos.get(exchange.connection)
    columns.peer_infos = peer_infos
    return copies, columns


@times(1.5)
@given(filters(CONNECTION_TESTS))
def test_filters_of_connections(connected: tuple[Sample, IndexColumns], text: str) -> None:
    sample, columns = connected
    wanted = compile(text)
    assert wanted.columns_only
    test = wanted.columns(columns)
    assert test is not None
    expected = [number for number, exchange in enumerate(sample) if wanted(exchange)]
    assert list(test.rows(0, len(columns))) == expected


def test_the_columns_are_those_of_the_format(columns: IndexColumns) -> None:
    assert columns.layout.columns == numpy.dtype(DTYPE).names


@times(1.5)
@given(filters(INDEX_TESTS))
def test_both_agree(sample: list[Exchange], columns: IndexColumns, text: str) -> None:
    for zone in ZONES[: 4 if "time" in text else 1]:
        wanted = compile(text, now=NOW, zone=zone)
        assert wanted.index_only
        test = wanted.columns(columns)
        assert test is not None
        expected = [number for number, exchange in enumerate(sample) if wanted(exchange)]
        assert list(test.rows(0, len(columns))) == expected
        middle = len(columns) // 2
        assert list(test.rows(middle, len(columns), base=7)) == [n + 7 for n in expected if n >= middle]


@times(1)
@given(filters(ALL_TESTS))
def test_the_index_part_passes_every_match(connected: tuple[Sample, IndexColumns], text: str) -> None:
    """A filter selects nothing that the columns exclude, and only exchanges of its `apis`."""
    sample, columns = connected
    wanted = compile(text, now=NOW)
    test = wanted.columns(columns)
    passed = set(range(len(sample))) if test is None else set(test.rows(0, len(columns)))
    apis = wanted.apis()
    for number, exchange in enumerate(sample):
        if number not in passed or (apis is not None and exchange.api_key not in apis):
            assert not wanted(exchange)


def test_the_index_part_selects_the_apis_of_a_filter(columns: IndexColumns) -> None:
    for text, key in (
        ("api == Produce and topic == orders", 0),
        ("topic == orders and (api eq fetch or api == 1)", 1),
        ("acks == 0", 0),
        ("any(req.group_instance_id == a) and api in {JoinGroup, Produce}", 11),
        ("not (api != Heartbeat or not group == a)", 12),
    ):
        wanted = compile(text)
        assert wanted.apis() == {key}
        test = wanted.columns(columns)
        assert test is not None
        keys = [found for (found,) in columns.tuples(("api_key",), 0, len(columns))]
        assert {keys[number] for number in test.rows(0, len(columns))} == {key}


def test_an_or_may_leave_all_records_to_decode(columns: IndexColumns) -> None:
    assert compile("err or not topic == a").columns(columns) is None
    assert compile("err or not topic == a").apis() is None
    part = compile("err or acks == 0").columns(columns)
    assert part is not None and 0 < len(list(part.rows(0, len(columns)))) < len(columns)


def test_the_deepest_filter_runs_over_columns(sample: list[Exchange], columns: IndexColumns) -> None:
    text = "latency > 1ms"
    for depth in range(MAX_DEPTH // 3):
        text = f"not (ver == {depth} and (err or {text}))"
    wanted = compile(text)
    test = wanted.columns(columns)
    assert test is not None
    assert list(test.rows(0, len(columns))) == [n for n, exchange in enumerate(sample) if wanted(exchange)]


def test_ids_missing_in_a_damaged_table(sample: list[Exchange]) -> None:
    index = indexed(sample)
    clients = sorted({index.record(number).client_id for number in range(index.count)} - {0})
    del index.strings[clients[len(clients) // 2] :]
    index.connections.clear()
    columns = IndexColumns(index)
    known = [number for number in range(len(columns)) if index.string(index.record(number).client_id)]
    assert 0 < len(known) < len(columns)
    unknown = [number for number in range(len(columns)) if number not in known]
    for text, expected in (
        ("client", known), ("client ~ .", known), ("not client", unknown), ("addr == 10.0.0.1", []), ("broker.port > 1", []),
        ("client contains o", [n for n in known if "o" in (sample[n].client_id or "")]),
    ):  # fmt: skip
        test = compile(text).columns(columns)
        assert test is not None
        assert list(test.rows(0, len(columns))) == expected, text


def test_a_time_of_day_follows_the_clocks_that_change() -> None:
    """New York, November 2023: 12:00 is 16:00 UTC on the 4th and 17:00 UTC on the 6th."""
    zone = ZoneInfo("America/New_York")
    noons = [1699113600 * 10**9, 1699290000 * 10**9]
    found = [Exchange(request=b"", request_time_ns=ns) for ns in noons]
    columns = IndexColumns(indexed(found))
    wanted = compile("time in 12:00..12:00:01", zone=zone)
    assert [wanted(exchange) for exchange in found] == [True, True]
    test = wanted.columns(columns)
    assert test is not None and list(test.rows(0, 2)) == [0, 1]
    assert [compile("time == 16:00", zone=UTC)(exchange) for exchange in found] == [True, False]


def test_every_field_has_its_value() -> None:
    """`pending` is a duration until now, which `compiled` knows."""
    assert {field.name for field in FIELDS} - {"pending"} == ONE.keys() | MANY.keys()
