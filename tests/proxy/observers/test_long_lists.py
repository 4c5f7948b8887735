"""Twice the items in a list are at most about twice the work: in masking, showing, recording and findings, for all APIs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from barnabas import decoder
from barnabas.captures import Recorder
from barnabas.captures.tables.body_tables import error_rows
from barnabas.decoder import Direction, Exchange
from barnabas.decoder.connection.exchange import State
from barnabas.decoder.records import Record, encode_batch
from barnabas.decoder.schema import facts
from barnabas.decoder.schema.plan import FieldPlan, StructPlan, plan
from barnabas.ui.tui.model.exchange_info import exchange_info
from harness.run.steps import assert_linear
from harness.wire import with_size
from traffic.conversations import Conversations
from traffic.unusual_messages import every_version

BATCH = encode_batch([Record(0, 1_700_000_000_000, b"k", b"v")])


class Lists(NamedTuple):
    """The lists of an API's newest version that are long: the outer ones or those in their items (`depth` 0, 1), with this error in
    every item of the response."""

    api_key: int
    depth: int
    error: int

    def __str__(self) -> str:
        return f"{facts.api_name(self.api_key)}-{('outer', 'inner')[self.depth]}-{facts.error_name(self.error)}"

    def bodies(self, size: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Request and response."""
        version = _newest(self.api_key)
        sizes = (size, 1) if self.depth == 0 else (1, size)
        found = []
        for kind in ("request", "response"):
            root = plan(kind, self.api_key, version).root
            found.append(_struct(root, sizes, 0, self.error if kind == "response" else 0))
        return found[0], found[1]

    def exchange(self, size: int) -> Exchange:
        version = _newest(self.api_key)
        asked, answered = self.bodies(size)
        return Exchange(
            connection=1, api_key=self.api_key, api_version=version, correlation_id=7, client_id="app", state=State.PAIRED,
            request=decoder.encode_request(self.api_key, version, asked, correlation_id=7, client_id="app"), request_time_ns=1,
            response=decoder.encode_response(self.api_key, version, answered, correlation_id=7), response_time_ns=2,
        )  # fmt: skip


def every_long_list(errors: tuple[int, ...] = (0, 3)) -> Iterator[Lists]:
    for key in sorted({key for key, _ in every_version()}):
        deepest = max(_depth(plan(kind, key, _newest(key)).root) for kind in ("request", "response"))
        yield from (Lists(key, depth, error) for depth in range(min(deepest, 2)) for error in errors)


def _newest(api_key: int) -> int:
    version = facts.api(api_key).versions.high
    assert version is not None
    return version


def _depth(of: StructPlan) -> int:
    return max(((1 if f.array else 0) + (_depth(f.struct) if f.struct else 0) for f in of.fields), default=0)


def _struct(of: StructPlan, sizes: tuple[int, ...], number: int, error: int) -> dict[str, Any]:
    return {field.name: _field(field, sizes, number, error) for field in of.fields if field.tag is None}


def _field(field: FieldPlan, sizes: tuple[int, ...], number: int, error: int) -> Any:
    if not field.array:
        return _struct(field.struct, sizes, number, error) if field.struct else _value(field, number, error)
    count, rest = (sizes[0], sizes[1:]) if sizes else (1, ())
    if field.struct:
        return [_struct(field.struct, rest, number if count == 1 else i, error) for i in range(count)]
    return [_value(field, i, error) for i in range(count)]


def _value(field: FieldPlan, number: int, error: int) -> Any:
    name = field.name
    match field.type:
        case "string":
            return f"password-{number}" if name == "value" else f"name-{number}"
        case "bytes":
            return b""
        case "records":
            return BATCH
        case "uuid":
            return (number + 1).to_bytes(16, "big")
        case "bool":
            return False
        case "float64":
            return 0.0
    if name == "acks":
        return -1
    return error if name == "error_code" else 0 if name.endswith(("throttle_time_ms", "type", "operation", "error_code")) else number % 100


FAILED, SUCCEEDED = 3, 0
SIZE = 40
LISTS = [*every_long_list((FAILED,)), *(pytest.param(each, marks=pytest.mark.slow) for each in every_long_list((SUCCEEDED,)))]


@pytest.mark.parametrize("lists", LISTS, ids=str)
def test_what_observers_do(lists: Lists, tmp_path: Path) -> None:
    def masked(size: int) -> Callable[[], object]:
        exchange = lists.exchange(size)
        return lambda: [exchange.masked(direction) for direction in Direction]

    def shown(size: int) -> Callable[[], object]:
        exchange = lists.exchange(size)
        return lambda: (exchange.to_dict(values=True), list(error_rows(exchange)), exchange_info(exchange))

    def recorded(size: int) -> Callable[[], object]:
        exchange = lists.exchange(size)
        recorder = Recorder(tmp_path / str(size))
        recorder.opened(1, 0, ("10.0.0.5", 40000), ("10.0.0.1", 9092))

        def run() -> None:
            recorder.data(1, 0, 1, with_size(exchange.request or b""))
            recorder.data(1, 1, 2, with_size(exchange.response or b""))
            recorder.close()
            assert recorder.counts["exchanges"] == 1

        return run

    def judged(size: int) -> Callable[[], object]:
        api, version, bodies = facts.api_name(lists.api_key), lists.exchange(1).api_version, lists.bodies(size)
        talk = Conversations()
        connection = talk.open()

        def run() -> None:
            for _ in range(2):
                talk.ask(connection, api, version, *bodies)
                talk.wait(1)
            talk.close(connection)
            talk.findings()

        return run

    for work in (masked, shown, recorded, judged):
        work(3)()  # what is made once
        assert_linear(work, SIZE)
