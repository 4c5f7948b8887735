"""A record's whole value on a screen of its own: readable, wrapped, copied and exported as it is."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from barnabas.captures import open_capture
from barnabas.decoder.values import SchemaFiles, read_schema, view
from barnabas.ui.tui.exchange.value_screen import ValueScreen, whole_lines
from harness.recordings import RecordingBuilder, produce, produced
from textual.pilot import Pilot
from traffic.every_kind import batch

from ..support.awaiting import until, until_true
from ..support.driving import detail, drive, screen

ORDER = {"order": 17, "customer": "Größe 温度", "items": [{"sku": f"lamp-{i}", "price": 1.5} for i in range(60)]}
TEXT = "first line\nsecond\ttabbed\x1b[2J " + "word " * 400
BINARY = bytes(range(256)) * 3


def on_value(value: bytes, folder: Path, steps: Callable[[Pilot[None]], object], name: str = "value", shown: bool = True) -> None:
    """Open an exchange with this record, go to a part of the record, and press Enter."""
    with RecordingBuilder(folder / "run") as written:
        written.exchange("Produce", 9, produce("orders", batch(values=(value,))), produced("orders"))

    async def go(pilot: Pilot[None]) -> None:
        await pilot.press("enter", "shift+tab")
        await until(pilot, "topic_data")
        if shown:
            await pilot.press("v")
            await until(pilot, "VALUES SHOWN")
        tree = detail(pilot).request
        tree.move_to_field(next(i for i, field in enumerate(tree.tree_shown.fields) if field.name == name and field.depth > 3))
        await pilot.press("enter")
        await steps(pilot)  # type: ignore[misc]

    with open_capture(folder / "run") as capture:
        drive(capture, go)


def test_json_is_indented_copied_and_exported(tmp_path: Path) -> None:
    value = json.dumps(ORDER).encode()
    path = tmp_path / "value.json"

    async def steps(pilot: Pilot[None]) -> None:
        assert '"customer": "Größe 温度",' in await until(pilot, "record 100 value")
        shown = screen(pilot, ValueScreen)
        lines = ["".join(text for text, _ in row) for row in shown.table.rows]
        assert json.loads("".join(lines)) == ORDER and len(lines) > 240
        await pilot.press("G")
        await until(pilot, f"line {len(lines)} of {len(lines)}")
        await pilot.press("y")
        await until(pilot, "Copied: value")
        assert json.loads(pilot.app.clipboard) == ORDER
        await pilot.press("x")
        await until(pilot, "the bytes of the value")
        await pilot.press("enter")
        await until(pilot, "Write the value as it is shown to")
        pilot.app.screen.query_one("Input").value = str(path)  # type: ignore[attr-defined]
        await pilot.press("enter")
        await until_true(pilot, path.exists)
        await pilot.press("escape")
        await until(pilot, "topic_data")

    on_value(value, tmp_path, steps)
    assert json.loads(path.read_text()) == ORDER


def test_a_header_opens_and_a_hidden_value_does_not(tmp_path: Path) -> None:
    async def header(pilot: Pilot[None]) -> None:
        await until(pilot, 'record 100 header "trace"')
        await until(pilot, "header-value")

    on_value(b"hidden", tmp_path / "a", header, name='header "trace"')

    async def hidden(pilot: Pilot[None]) -> None:
        await until(pilot, "v shows keys, values and headers")

    on_value(b"hidden", tmp_path / "b", hidden, shown=False)


def test_y_on_the_field_copies_all_of_it(tmp_path: Path) -> None:
    async def steps(pilot: Pilot[None]) -> None:
        await pilot.press("escape", "y")
        await until(pilot, "Copied: value")
        assert pilot.app.clipboard == TEXT

    on_value(TEXT.encode(), tmp_path, steps)


@pytest.mark.parametrize("width", [1, 20, 77])
def test_text_is_wrapped_and_harmless(width: int) -> None:
    lines = whole_lines(TEXT.encode(), view(TEXT.encode()), width)
    assert all(len(line) <= width and line.isprintable() for line in lines)
    first, _, rest = TEXT.partition("\n")
    assert "".join(lines) == first + rest.replace("\t", "  ").replace("\x1b", r"\x1b")  # a tab to the next multiple of four


def test_what_a_schema_decodes_is_indented_json() -> None:
    schema = {"type": "record", "name": "Order", "fields": [{"name": "item", "type": "string"}, {"name": "n", "type": "int"}]}
    files = SchemaFiles()
    files.add(read_schema("order.avsc", json.dumps(schema).encode()), topic="orders")
    data = b"\x08lamp\x06"  # Avro: a string of 4 bytes, and 3 in zigzag
    assert whole_lines(data, view(data, registry=files, topic="orders"), 80) == ["{", '  "item": "lamp",', '  "n": 3', "}"]


def test_bytes_are_in_hexadecimal() -> None:
    data = bytes(random.Random(5).randrange(256) for _ in range(1000)) + b"\0"
    lines = whole_lines(data, view(data), 80)
    assert bytes.fromhex("".join(line[10:58] for line in lines)) == data
    assert [int(line[:8], 16) for line in lines] == list(range(0, len(data), 16))
    assert lines[0][59:] == "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in data[:16])
