"""Names that are read in bulk are those of `names_of`, exchange by exchange: of every API and version, of wrong bytes, of segments
that are damaged, cut, compressed or growing, and of captures of others. What is not known is what cannot be decoded."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from barnabas.captures import Capture, Recorder, open_capture
from barnabas.captures.reading import selection
from barnabas.captures.recording import bulk_names
from barnabas.captures.recording.index import UNDECODED
from barnabas.captures.recording.names import NameTable, SegmentNames
from barnabas.decoder import Exchange, Topics
from barnabas.decoder.codec.encode import encode_struct
from barnabas.decoder.filter import compile, entities
from barnabas.decoder.filter.names import UNKNOWN_ID, Names, apis, names_of, paths
from barnabas.decoder.filter.values import pairs_as_sent
from barnabas.decoder.schema import facts
from barnabas.decoder.schema.plan import FieldPlan, Plan, StructPlan, plan
from harness.generator import Generator, triples
from harness.run.slices import thin
from harness.wire import with_size
from traffic.packets import NOW, as_pcap, as_pcapng, traffic
from traffic.recordings import CAPTURES

np = pytest.importorskip("numpy")
pytestmark = pytest.mark.skipif(selection.native is None, reason="the accelerator is not built")
KEYS = sorted(apis())
FEW = ("a", "bb", "größe")


def few(field: FieldPlan, value: Any, chance: random.Random) -> Any:
    """The same value with other names, of which there are few: many exchanges then have the same, in all ways."""
    if value is None:
        return None
    if isinstance(value, tuple) and (field.array or field.struct is None):
        return tuple(few_of(field.struct, each, chance) if field.struct else few(field, each, chance) for each in value)
    if field.struct is not None:
        return few_of(field.struct, value, chance)
    if field.type == "string":
        return chance.choice(FEW)
    if field.name == "key_type":
        return chance.randrange(3)
    return bytes(15) + bytes([chance.randrange(3)]) if field.type == "uuid" else value


def few_of(struct: StructPlan, values: Any, chance: random.Random) -> Any:
    return (*(few(field, value, chance) for field, value in zip(struct.fields, values, strict=False)), *values[len(struct.fields) :])


def frame(of: Plan, values: Any, number: int = 1) -> bytes:
    out = bytearray()
    encode_struct(of.root, values, out)
    correlation, tags = number.to_bytes(4, "big"), b"\0" if of.header_version == (2 if of.kind == "request" else 1) else b""
    if of.kind == "response":
        return correlation + tags + bytes(out)
    client = b"\0\x01c" if of.header_version else b""
    return of.api_key.to_bytes(2, "big") + of.version.to_bytes(2, "big") + correlation + client + tags + bytes(out)


def frames_of(keys: list[int], times: int, damage: bool = False) -> Iterator[tuple[bytes, bytes | None]]:
    generator = Generator(5)
    chance, number = generator.random, 0
    for key in keys:
        for version in facts.api(key).versions.every():
            for _ in range(times):
                number += 1
                pair = []
                for kind in ("request", "response"):
                    of = plan(kind, key, version)
                    values = generator.values(of)
                    pair.append(frame(of, values if chance.random() < 0.3 else few_of(of.root, values, chance), number))
                if damage:
                    which = chance.randrange(2)
                    wrong, head = bytearray(pair[which]), 4 if which else 8
                    for _ in range(chance.choice((1, 1, 3))):
                        if len(wrong) > head:
                            wrong[chance.randrange(head, len(wrong))] = chance.choice((0, 1, 127, 128, 255))
                    cut = chance.choice((0, 0, 0, 1, 9))
                    pair[which] = bytes(wrong[: max(len(wrong) - cut, head)]) + bytes(chance.choice((0, 0, 0, 2)))
                yield pair[0], pair[1] if chance.random() < 0.9 else None


def record(directory: Path, frames: Any, **options: Any) -> Path:
    recorder = Recorder(directory, **options)
    recorder.opened(1, NOW, ("10.0.0.1", 50001), ("10.0.0.9", 9092))
    recorder.opened(2, NOW, ("fd00::1", 50001), ("fd00::9", 9092))
    for number, (request, response) in enumerate(frames):
        recorder.data(1 + number % 2, 0, NOW + number * 1000, with_size(request))
        if response is not None:
            recorder.data(1 + number % 2, 1, NOW + number * 1000 + 500, with_size(response))
    recorder.close()
    return directory


def learned(capture: Capture, finder: Callable[[NameTable], bulk_names.BulkNames] = bulk_names.BulkNames) -> list[Names | None]:
    """The names of all exchanges, as far as they are found in bulk."""
    table = NameTable()
    bulk, found = finder(table), list[Names | None]()
    for file, start, stop in zip(capture.segments, capture.starts, capture.starts[1:], strict=False):
        count = stop - start
        names = SegmentNames(table)
        names.grow(bytes(4 * count))
        placed = file.frames(file.index.array()[:count])
        if placed is not None:
            bulk.learn(names, file.index, np.arange(count), placed)
        assert names.learned == sum(each != UNKNOWN_ID for each in names.ids)
        found += [None if each == UNKNOWN_ID else table.sets[each] for each in names.ids]
    return found


def agree(capture: Capture) -> list[int]:
    """Compare all that is found with the exchanges; return which are not found."""
    found = learned(capture)
    left = []
    assert len(found) == len(capture.rows())
    for number, names in enumerate(found):
        segment, within = capture.locate(number)
        file = capture.segments[segment]
        entry = file.index.record(within)
        exchange = file.exchange(entry)
        if names is None:
            left.append(number)
            continue
        assert names == names_of(exchange), (number, exchange)
        # what one by one would not be remembered either is not
        assert (exchange.request is None) is (entry.request_offset < 0) and (exchange.response is None) is (entry.response_offset < 0)
        assert not entry.flags & UNDECODED
    return left


def undecoded(capture: Capture) -> set[int]:
    return {row.number for row in capture.rows() if row.undecoded or row.surplus}


@pytest.mark.parametrize("key", thin(KEYS, 4))
def test_every_api_and_version(tmp_path: Path, key: int) -> None:
    with open_capture(record(tmp_path / "r", frames_of([key], 25))) as capture:
        assert not undecoded(capture) and agree(capture) == []


@pytest.mark.slow
def test_all_apis_together(tmp_path: Path) -> None:
    """Nothing of one API is taken for something of another one."""
    with open_capture(record(tmp_path / "r", frames_of(list(facts.api_keys()), 6))) as capture:
        assert len(capture.rows()) > 1500 and agree(capture) == []


@pytest.mark.parametrize("part", thin(range(4), 1))
def test_wrong_bytes(tmp_path: Path, part: int) -> None:
    with open_capture(record(tmp_path / "r", frames_of(KEYS[part::4], 6, damage=True))) as capture:
        left = agree(capture)
        assert set(left) <= undecoded(capture) and len(left) < len(capture.rows()) * 0.9


def test_nothing_that_names_something_is_in_a_tag() -> None:
    """If a version of Kafka's has it there, its exchanges are read one by one: then it is time for something better."""
    assert [triple for triple in triples() if paths(plan(*triple)) is None] == []


def test_a_field_in_a_tag_is_left_to_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    of = plan("response", facts.api_key("Fetch"), 17)
    tagged = next(field.name for field in of.root.fields if field.tag is not None)
    monkeypatch.setattr(entities, "topic_paths", lambda struct: (entities.TopicPaths(tagged, None),))
    assert paths.__wrapped__(of) is None


def test_topics_are_those_of_the_topic_partitions() -> None:
    generator = Generator(12)
    for kind, key, version in triples():
        of = plan(kind, key, version)
        values = generator.values(of)
        for each in (values, few_of(of.root, values, generator.random)):
            exchange = Exchange(api_key=key, api_version=version, **{kind: frame(of, each)})
            expected = {(pair.topic, pair.topic_id) for pair in pairs_as_sent(exchange)}
            found = names_of(exchange).topics
            assert set(found) == expected and len(found) == len(expected), (kind, key, version)


def test_paths_are_all_that_names_are_read_from() -> None:
    """Other values may be anything: the names are the same."""
    generator = Generator(11)
    for kind, key, version in triples():
        of = plan(kind, key, version)
        known = paths(of) or ()
        for _ in range(2):
            values = generator.values(of)
            frames = [frame(of, each) for each in (values, changed(of.root, values, generator.random, known, ""))]
            first, second = (names_of(Exchange(api_key=key, api_version=version, **{kind: each})) for each in frames)
            assert first == second, (kind, key, version)


def changed(struct: StructPlan, values: Any, chance: random.Random, known: tuple[str, ...], prefix: str) -> Any:
    """The same with other plain values wherever nothing is named."""

    def other(field: FieldPlan, value: Any) -> Any:
        path = prefix + field.name
        if value is None or path in known:
            return value
        if field.struct is not None:
            inner = lambda each: changed(field.struct, each, chance, known, path + ".")  # noqa: E731
            return tuple(map(inner, value)) if field.array else inner(value)
        if field.array:
            return value[: chance.randrange(len(value) + 1)]
        if isinstance(value, str):
            return chance.choice(FEW)
        if isinstance(value, bytes):
            return chance.randbytes(len(value))
        return chance.choice((0, 1)) if not isinstance(value, bool | float) else value

    return (*(other(field, value) for field, value in zip(struct.fields, values, strict=False)), *values[len(struct.fields) :])


@pytest.mark.parametrize("name", thin([path.stem for path in sorted(CAPTURES.glob("*.pcapng"))], 8))
def test_recordings_of_real_clients(name: str) -> None:
    with open_capture(CAPTURES / f"{name}.pcapng") as capture:
        agree(capture)


def small(count: int = 150) -> Iterator[tuple[bytes, bytes | None]]:
    return frames_of([facts.api_key(name) for name in ("Produce", "Fetch", "OffsetCommit", "FindCoordinator", "Metadata")], count // 50)


def test_damaged_segments(tmp_path: Path) -> None:
    """A wrong byte anywhere: what a packet's sums or the block's lengths show to be damaged is not read."""
    directory = record(tmp_path / "r", small())
    (path,) = directory.glob("*.pcapng")
    whole, chance = path.read_bytes(), random.Random(2)
    with open_capture(directory) as capture:
        blocks = [capture.segments[0].index.record(n).request_offset for n in range(capture.segments[0].index.count)]
    seen = 0
    for _ in range(12):
        damaged = bytearray(whole)
        for offset in chance.sample(blocks, 30):
            damaged[offset + chance.choice((chance.randrange(28), 28 + chance.randrange(60), chance.randrange(200)))] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        with open_capture(directory) as capture:
            assert not capture.segments[0].rebuilt
            left = agree(capture)
            seen += len(left)
            assert len(left) <= 60
    assert seen > 100


def test_frames_of_several_packets_and_cut_ones_are_left(tmp_path: Path) -> None:
    from barnabas import decoder

    topics = [{"name": f"topic-{number:05}" * 10, "partitions": []} for number in range(1200)]
    large = decoder.encode_request(8, 8, {"group_id": "g", "topics": topics}, correlation_id=1)
    with open_capture(record(tmp_path / "r", [*small(), (large, None), *small(50)])) as capture:
        assert agree(capture) == [next(n for n, row in enumerate(capture.rows()) if row.request_size == len(large))]
    with open_capture(record(tmp_path / "cut", small(), snaplen=128)) as capture:
        left = set(agree(capture))
        assert left == {n for n, row in enumerate(capture.rows()) if row.cut} and left


def test_compressed_segments(tmp_path: Path) -> None:
    directory = record(tmp_path / "r", small())
    (path,) = directory.glob("*.pcapng")
    packed = tmp_path / "packed.pcapng.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    with open_capture(packed) as capture:
        assert agree(capture) == [] and len(capture.rows()) > 100


@pytest.mark.parametrize("form", [as_pcap, as_pcapng])
@pytest.mark.parametrize("how", ["as sent", "lost"])
def test_captures_of_others(tmp_path: Path, form: Callable[..., bytes], how: str) -> None:
    path = tmp_path / "other.cap"
    path.write_bytes(form(traffic(4, how)))
    with open_capture(path) as capture:
        orphans = {row.number for row in capture.rows() if row.api_key < 0}  # nobody asks for their names
        left = set(agree(capture))
        assert left <= undecoded(capture) | orphans and len(capture.rows()) - len(left) > 20


def test_a_growing_segment_and_one_that_is_gone(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "live", flush_seconds=3600)
    recorder.opened(1, NOW, ("10.0.0.1", 5), ("kafka", 9092))
    pairs = [pair for pair in small(300) if pair[1] is not None]

    def add(some: list[Any]) -> None:
        for request, response in some:
            recorder.data(1, 0, NOW, with_size(request))
            recorder.data(1, 1, NOW + 5, with_size(response))
        recorder.flush()

    add(pairs[:60])
    with open_capture(tmp_path / "live") as capture:
        assert agree(capture) == [] and len(capture.rows()) == 60
        add(pairs[60:100])
        capture.refresh()
        assert agree(capture) == [] and len(capture.rows()) == 100
        recorder.close()
        capture.refresh()
        for path in (tmp_path / "live").iterdir():
            path.unlink()
        capture.refresh()
        assert agree(capture) == list(range(100)) and capture.removed == 1


def test_what_exchanges_are_known_by_takes_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_names, "_MOST_BYTES", 3000)
    made: list[bulk_names.BulkNames] = []

    def finder(table: NameTable) -> bulk_names.BulkNames:
        made.append(bulk_names.BulkNames(table))
        return made[0]

    with open_capture(record(tmp_path / "r", small(600), segment_bytes=8000)) as capture:
        assert len(capture.segments) > 5
        found = learned(capture, finder)
        assert [names is None for names in found] == [row.carried for row in capture.rows()]
        assert len(made[0]._known) == len(made[0]._ids) < 60
        agree(capture)


def test_topics_are_learned_in_bulk(tmp_path: Path) -> None:
    """Metadata of many clients: the last name of an id counts, as one by one."""
    metadata = facts.api_key("Metadata")
    with open_capture(record(tmp_path / "r", frames_of([metadata], 40))) as capture:
        expected = Topics()
        for number in range(len(capture.rows())):
            expected.learn(capture.exchange(number))
        wanted = selection.Selection(capture, compile("topic == a"))
        list(wanted.rows())
        assert wanted.topics.names == expected.names and len(expected.names) > 20
