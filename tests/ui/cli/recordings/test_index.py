"""barnabas index: what it says of recordings, and what it makes anew."""

import json
from pathlib import Path

import pytest
from barnabas.captures import open_capture
from barnabas.captures.reading.selection import Selection
from barnabas.captures.reading.verify import verify
from barnabas.captures.recording.index import paths
from barnabas.decoder.filter import compile


@pytest.fixture
def segment(recording: Path) -> Path:
    return next(recording.glob("*.pcapng"))


def contents(segment: Path) -> list[bytes]:
    return [path.read_bytes() for path in (segment, *paths(segment))]


def test_a_fine_recording(run, recording: Path, segment: Path) -> None:
    before = contents(segment)
    for arguments in ([recording], [segment, "--dry-run"]):
        done = run("index", *arguments)
        assert done.returncode == 0, done.stderr
        assert done.stdout == f"{segment.name}: fine, 4 exchanges\n" and done.stderr == "1 fine\n"
    assert contents(segment) == before


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("gone", "are missing"),
        ("cut", "belongs to another segment, or is damaged"),
        ("flipped", "1 of its records are wrong, the first is number 1 (latency_ns)"),
        ("open", "was not completed"),
        ("names", "(.strings) are not those of the segment"),
    ],
)
def test_an_index_that_is_wrong(recording: Path, segment: Path, what: str, reason: str) -> None:
    good = contents(segment)
    index, strings = paths(segment)
    if what == "gone":
        index.unlink()
        strings.unlink()
    else:
        data = bytearray(good[1])
        if what == "cut":
            del data[-10:]
        elif what == "flipped":
            data[64 + 64 + 8] ^= 1
        elif what == "open":
            data[12] = 0
        index.write_bytes(data)
    if what == "names":
        strings.write_bytes(good[2].replace(b"shop", b"shoq"))
    found = verify(segment)
    assert not found.is_well and found.state == "wrong" and reason in found.index
    assert found.records == 4 and found.damage == ()
    if what != "gone":
        assert contents(segment) != good
    done = verify(segment, write=True)
    assert done.is_well and f"index rebuilt, 4 exchanges: {found.index}" in done.lines[0]
    assert contents(segment) == good
    assert sorted(path.name for path in recording.iterdir()) == sorted([segment.name, index.name, strings.name])
    assert verify(segment).state == "fine"


def test_looking_only(run, recording: Path, segment: Path) -> None:
    for path in paths(segment):
        path.unlink()
    checked = run("index", "--dry-run", "--json", recording)
    found = json.loads(checked.stdout)
    assert checked.returncode == 1 and found["state"] == "wrong" and "are missing" in found["index"]
    assert found["records"] == 4 and found["damage"] == [] and found["path"] == str(segment)
    assert [path.name for path in recording.iterdir()] == [segment.name]
    assert run("index", recording).returncode == 0
    assert len(contents(segment)) == 3


def test_a_damaged_segment(run, recording: Path, segment: Path) -> None:
    with open_capture(recording) as capture:
        place = capture.rows()[1].response_offset
    assert place is not None
    data = bytearray(segment.read_bytes())
    data[place + 28 + 60] ^= 0xFF
    segment.write_bytes(data)
    before = contents(segment)
    done = run("index", recording)
    assert done.returncode == 1
    assert f"  damaged: bytes {place} to " in done.stdout
    assert contents(segment) == before  # the index that fits knows more than can be read
    decoded = run("decode", "--json", recording)
    assert decoded.returncode == 0, decoded.stderr
    lines = [json.loads(line) for line in decoded.stdout.splitlines()]
    assert len(lines) == 4 and lines[1]["response"] is None and lines[1]["request"] is not None
    with open_capture(recording) as capture:
        assert f"the packet at byte {place} is damaged" in capture.exchange(1).marks.notes[0]
    for path in paths(segment):
        path.unlink()
    assert not verify(segment, write=True).is_well and not paths(segment)[0].exists()
    with open_capture(recording) as capture:
        assert f"bytes {place} to " in (capture.note or "")


def test_what_is_left_behind_by_a_kill(recording: Path, segment: Path) -> None:
    part = segment.rename(segment.with_name(segment.name + ".part"))
    part.write_bytes(part.read_bytes()[:-100])
    for path in paths(segment):
        path.unlink()
    done = verify(part, write=True)
    assert done.is_well and "ends in the middle of a block" in done.lines[0] and "read from the beginning" in done.lines[0]
    assert part.exists()


def test_of_others(tmp_path: Path, segment: Path) -> None:
    foreign = tmp_path / "foreign.pcapng"
    foreign.write_bytes(segment.read_bytes().replace(b"barnabas", b"somebody", 1))
    done = verify(foreign, write=True)
    assert done.is_well and "not recorded by barnabas" in done.lines[0]
    assert [path.name for path in tmp_path.glob("foreign*")] == ["foreign.pcapng"]
    (tmp_path / "text.pcapng").write_text("no capture\nat all\n")
    done = verify(tmp_path / "text.pcapng")
    assert not done.is_well and done.to_dict()["state"] == "unreadable"
    assert done.lines[0].startswith("text.pcapng: not a capture: ")


def test_names_are_kept_for_filters(run, recording: Path) -> None:
    before = sorted(recording.iterdir())
    assert run("index", recording, "--names", "--dry-run").returncode == 0
    assert sorted(recording.iterdir()) == before
    done = run("index", recording, "--names")
    assert done.returncode == 0 and f"names kept beside {len(before) // 3} of {len(before) // 3} segments" in done.stderr
    assert len(list(recording.glob("*.names"))) == len(before) // 3
    for wanted in ("topic == orders", "group ~ .", "txn ~ ."):
        with open_capture(recording) as capture:
            selection = Selection(capture, compile(wanted))
            assert sum(1 for _ in selection.rows()) == sum(map(selection.filter, map(selection.exchange, capture.rows())))
            assert selection.decoded == 0
    for path in recording.glob("*.names"):
        path.unlink()
        path.mkdir()
    done = run("index", recording, "--names")
    assert done.returncode == 2 and ".names: Is a directory" in done.stderr and "Traceback" not in done.stderr
