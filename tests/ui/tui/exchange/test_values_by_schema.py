"""Keys and values read by their schemas in the field tree: only when they are shown, and by the topic's name or id."""

from __future__ import annotations

import asyncio
import io
import json
import threading
import uuid
from pathlib import Path
from typing import Any

import fastavro
from barnabas.captures import open_capture
from barnabas.decoder.records import Record, encode_batch
from barnabas.decoder.values import Schema, SchemaError, read_schema
from barnabas.ui.cli.common.opening import schemas_of
from barnabas.ui.tui.app import BarnabasApp
from barnabas.ui.tui.exchange.detail import DetailScreen
from harness.recordings import RecordingBuilder, produce, produced
from harness.waiting import PATIENCE

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "item", "type": "string"}, {"name": "n", "type": "int"}],
}
TOPIC_ID = uuid.UUID(int=77)


def _avro(value: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(SCHEMA), value)
    return out.getvalue()


def test_values_by_a_schema_file(tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text(json.dumps(SCHEMA))
    good = encode_batch([Record(0, 1, b"k", _avro({"item": "lamp\x1b[2J", "n": 3}))])
    bad = encode_batch([Record(0, 1, b"k", b"\xff\xff")])
    topics = [{"name": "orders", "topic_id": TOPIC_ID, "partitions": []}]
    by_id = {"topics": [{"topic_id": TOPIC_ID, "partitions": [{"partition": 0}]}]}
    fetched = {"responses": [{"topic_id": TOPIC_ID, "partitions": [{"partition_index": 0, "records": good}]}]}
    with RecordingBuilder(tmp_path / "run") as recording:
        recording.exchange("Produce", 9, produce("orders", good), produced("orders"))
        recording.exchange("Produce", 9, produce("other", good), produced("other"))
        recording.exchange("Produce", 9, produce("orders", bad), produced("orders"))
        recording.exchange("Metadata", 12, {"topics": None}, {"topics": topics, "brokers": []})
        recording.exchange("Fetch", 13, by_id, fetched)
    source = schemas_of([f"{tmp_path}/order.avsc=orders"], None)

    async def values(number: int, side: str, *keys: str) -> str:
        app = BarnabasApp(capture, title="values", schemas=source)
        async with app.run_test(size=(160, 48)) as pilot:
            await pilot.press(*["j"] * number, "enter", *keys)
            screen = app.screen
            assert isinstance(screen, DetailScreen)
            return "\n".join(f"{field.name}: {field.value}" for field in getattr(screen, side).tree_shown.fields)

    with open_capture(tmp_path / "run") as capture:
        hidden = asyncio.run(values(0, "request"))
        shown = asyncio.run(values(0, "request", "v"))
        assert "lamp" not in hidden and "value: <" in hidden
        assert r'value: {"item": "lamp\u001b[2J", "n": 3} (avro)' in shown.replace('":"', '": "').replace(",\"", ', "')
        assert 'key: "k"' in shown
        assert r'value: "\x10lamp' in asyncio.run(values(1, "request", "v"))  # the schema is of another topic
        fault = asyncio.run(values(2, "request", "v"))
        assert "0xffff (hex" in fault and "Order" in fault  # says where it does not fit
        assert "lamp" in asyncio.run(values(4, "response", "v"))  # the topic's id is known from Metadata


class SlowRegistry:
    """Answers when the test lets it."""

    def __init__(self) -> None:
        self.asked, self.may = threading.Event(), threading.Event()
        self.times = 0

    def schema(self, schema_id: int) -> Schema | None:
        self.times += 1
        self.asked.set()
        assert self.may.wait(PATIENCE)
        if schema_id == 8:
            raise SchemaError("schema 8: the registry\x1b[2J says no")
        return read_schema("order.avsc", json.dumps(SCHEMA).encode())

    def for_topic(self, topic: str | None, is_key: bool) -> Schema | None:
        return None


def test_keys_are_heard_while_a_registry_is_asked(tmp_path: Path) -> None:
    value = _avro({"item": "lamp", "n": 3})
    batch = encode_batch([Record(0, 1, b"k", b"\0\0\0\0\7" + value), Record(1, 1, b"k", b"\0\0\0\0\x08" + value)])
    with RecordingBuilder(tmp_path / "run") as recording:
        recording.exchange("Produce", 9, produce("orders", batch), produced("orders"))
    registry = SlowRegistry()

    async def go() -> None:
        app = BarnabasApp(capture, title="values", schemas=registry)
        async with app.run_test(size=(160, 48)) as pilot:
            await pilot.press("enter", "v", "shift+tab")
            screen = app.screen
            assert isinstance(screen, DetailScreen)
            fields = lambda: "\n".join(f.value for f in screen.request.tree_shown.fields)  # noqa: E731
            assert registry.asked.wait(PATIENCE) and "schema 7: asking the registry" in fields()
            screen.request.move_to_field(3)
            await pilot.press("j")
            at = screen.request.position
            assert at == 4 and registry.times == 1
            registry.may.set()
            while "lamp" not in fields():
                await pilot.pause(0.01)
            assert r"schema 8: the registry\x1b[2J says no" in fields() and "asking" not in fields()
            assert screen.request.position == at and registry.times == 2

    with open_capture(tmp_path / "run") as capture:
        asyncio.run(asyncio.wait_for(go(), 60))
