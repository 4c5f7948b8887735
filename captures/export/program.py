"""One exchange as a Python program that sends the request again, or as a pytest case that checks the answer.

Both hold the request's fields and encode them by `decoder.encode_request`. Values from the traffic appear as `repr` literals
only, so none can become code. Secrets are masked, and contents of records are replaced by stars of the same size unless values
are asked for.
"""

from __future__ import annotations

import pprint
import textwrap
import uuid
from typing import Any

from ...decoder import Exchange, Message, decode_request, records
from ...decoder.codec.secrets import mask, secret_paths
from ...decoder.errors import DecodeError
from ...decoder.records.write import encode_messages_like
from ...decoder.schema import facts
from ...decoder.wire.frame import Direction
from ...errors import BarnabasError
from .stable_fields import stable

_WIDTH = 100


class NoProgram(BarnabasError):
    """The request cannot be sent again; the message has the reason."""


def program(exchange: Exchange, values: bool = False) -> str:
    """A program: ``python FILE HOST:PORT`` sends the request and prints the answer. Raises NoProgram."""
    asked = _request(exchange)
    answered = not _wants_no_answer(asked)
    return "\n".join(
        [
            f'"""{_title(exchange)}.',
            "",
            "    python THIS_FILE HOST:PORT        sends it to that broker, and prints the response",
            *_remarks(asked, values),
            '"""',
            "",
            *_imports(["json", "socket", "sys"], _needs_uuid(asked)),
            "from barnabas import decoder",
            *_records_import(asked),
            *(["from barnabas.decoder.present import present"] if answered else []),
            "",
            *_request_lines(exchange, asked, values),
            "",
            "",
            *(_ASK if answered else _SEND),
            "",
            "",
            'if __name__ == "__main__":',
            '    if len(sys.argv) != 2 or ":" not in sys.argv[1]:',
            '        sys.exit(f"usage: python {sys.argv[0]} HOST:PORT")',
            '    name, _, number = sys.argv[1].rpartition(":")',
            *(_PRINT if answered else ['    send(name.strip("[]"), int(number))', _NO_ANSWER]),
            "",
        ]
    )


def case(exchange: Exchange, values: bool = False) -> str:
    """A pytest case: the broker at ``BARNABAS_BROKER`` has to answer as the recorded one did. Raises NoProgram."""
    asked = _request(exchange)
    if _wants_no_answer(asked):
        raise NoProgram("no response is expected (acks=0), so there is nothing to assert on; use --as python")
    answered = exchange.response_message
    if answered is None:
        why = f"its response cannot be decoded ({exchange.cut or exchange.undecoded})" if exchange.response else "it has no response"
        raise NoProgram(f"{why}, so there is nothing to assert on; use --as python")
    name = f"test_{asked.api.lower()}_v{asked.api_version}_is_answered_as_recorded"
    return "\n".join(
        [
            f'"""{_title(exchange)}.',
            "",
            "    BARNABAS_BROKER=HOST:PORT pytest THIS_FILE",
            "",
            "Ids, epochs, offsets, times and addresses are left out, because they differ on every broker.",
            *_remarks(asked, values),
            '"""',
            "",
            *_imports(["os", "socket"], _needs_uuid(asked)),
            "from barnabas import decoder",
            "from barnabas.captures.export import stable",
            *_records_import(asked),
            "",
            *_request_lines(exchange, asked, values),
            *_assigned("EXPECTED", stable(exchange.masked_message(Direction.RESPONSE) or answered)),
            "",
            "",
            *_ASK,
            "",
            "",
            f"def {name}():",
            '    broker = os.environ.get("BARNABAS_BROKER")',
            '    assert broker, "set BARNABAS_BROKER=HOST:PORT, the broker to send it to"',
            '    name, _, number = broker.rpartition(":")',
            '    answer = stable(ask(name.strip("[]"), int(number)))',
            '    assert {path: answer.get(path, "(absent)") for path in EXPECTED} == EXPECTED',
            "",
        ]
    )


_ASK = '''\
def exactly(connection, size):
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise SystemExit("the broker ended the connection without an answer")
        data += part
    return data


def ask(host, port):
    """The broker's answer, decoded."""
    frame = decoder.encode_request(
        API_KEY, API_VERSION, FIELDS, correlation_id=CORRELATION_ID, client_id=CLIENT_ID
    )
    with socket.create_connection((host, port), timeout=30) as connection:
        connection.sendall(len(frame).to_bytes(4, "big") + frame)
        answer = exactly(connection, int.from_bytes(exactly(connection, 4), "big"))
    try:
        return decoder.decode_response(answer, api_key=API_KEY, api_version=API_VERSION)
    except decoder.TrailingBytes as fault:  # all fields are there, and extra bytes follow
        return fault.message'''.splitlines()
_SEND = '''\
def send(host, port):
    """Send the request; no response is expected (acks=0)."""
    frame = decoder.encode_request(
        API_KEY, API_VERSION, FIELDS, correlation_id=CORRELATION_ID, client_id=CLIENT_ID
    )
    with socket.create_connection((host, port), timeout=30) as connection:
        connection.sendall(len(frame).to_bytes(4, "big") + frame)
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)  # until the broker has read it and ends the connection'''.splitlines()
_PRINT = ['    print(json.dumps(present(ask(name.strip("[]"), int(number))), indent=2))']
_NO_ANSWER = '    print(json.dumps("sent; no response is expected (acks=0)"))'


class _Code:
    """An expression within a literal."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _request(exchange: Exchange) -> Message:
    if exchange.request is None:
        raise NoProgram("its request was not recorded")
    message = exchange.request_message
    if message is None:
        raise NoProgram(f"its request cannot be decoded ({exchange.cut or exchange.undecoded}); use --as hex")
    return message


def _wants_no_answer(asked: Message) -> bool:
    return asked.api == "Produce" and bool(asked["acks"] == 0)


def _title(exchange: Exchange) -> str:
    # Kafka's own names and numbers only: nothing that a client chose.
    return f"{facts.api_name(exchange.api_key)} v{exchange.api_version}, as it was recorded"


def _remarks(asked: Message, values: bool) -> list[str]:
    found = []
    if secret_paths(Direction.REQUEST, asked.api_key):
        found.append("Secrets are masked with stars: replace them with your own.")
    if any(field.type == "records" for field in _fields(asked.plan.root)) and not values:
        found.append("Keys and values of records are masked with stars; --show-values writes the recorded ones.")
    if asked.trailing:
        found.append(f"{len(asked.trailing)} bytes after the request's end are left out.")
    return ["", *(line for text in found for line in textwrap.wrap(text, _WIDTH))] if found else []


def _fields(of: Any) -> Any:
    for field in of.fields:
        yield field
        if field.struct is not None:
            yield from _fields(field.struct)


def _needs_uuid(asked: Message) -> bool:
    return any(field.type == "uuid" for field in _fields(asked.plan.root))


def _imports(names: list[str], with_uuid: bool) -> list[str]:
    return [f"import {name}" for name in names] + (["from uuid import UUID"] if with_uuid else []) + [""]


def _records_import(asked: Message) -> list[str]:
    if any(field.type == "records" for field in _fields(asked.plan.root)):
        return ["from barnabas.decoder.records import Record, encode_batch  # noqa: F401"]
    return []


def _request_lines(exchange: Exchange, asked: Message, values: bool) -> list[str]:
    frame = mask(Direction.REQUEST, asked.api_key, asked.api_version, asked.frame)
    try:
        shown = decode_request(frame)
    except DecodeError as fault:  # bytes behind the end: all fields are there
        if fault.message is None:
            raise NoProgram(f"its request cannot be decoded ({fault})") from None
        shown = fault.message
    return [
        f"API_KEY, API_VERSION = {asked.api_key}, {asked.api_version}",
        f"CORRELATION_ID, CLIENT_ID = {exchange.correlation_id}, {exchange.client_id!a}",
        *_assigned("FIELDS", _literal(shown.plan.root, shown.to_dict(), values)),
    ]


def _assigned(name: str, value: Any) -> list[str]:
    text = pprint.pformat(value, width=_WIDTH, sort_dicts=False)
    return [line if line.isascii() else _escaped(line) for line in f"{name} = {text}".split("\n")]


def _escaped(line: str) -> str:
    """A line of literals in ASCII: letters of other scripts stand in strings only."""
    return "".join(c if c.isascii() else c.encode("unicode_escape").decode("ascii") for c in line)


def _literal(of: Any, fields: dict[str, Any], values: bool) -> Any:
    """The fields with record areas as expressions."""
    out = dict(fields)
    for field in of.fields:
        value = out.get(field.name)
        if value is None:
            continue
        if field.type == "records":
            out[field.name] = _area(value, values)
        elif field.struct is not None and field.array:
            out[field.name] = [_literal(field.struct, item, values) for item in value]
        elif field.struct is not None:
            out[field.name] = _literal(field.struct, value, values)
        elif field.type == "uuid" and not field.array:
            assert isinstance(value, uuid.UUID)
    return out


def _area(data: bytes, values: bool) -> _Code:
    """A record area as an expression: batches by their records, message sets as bytes."""
    parts: list[str] = []
    try:
        for entry in records.batches(data):
            if isinstance(entry, records.Batch):
                parts.append(_batch(entry, values))
            elif isinstance(entry, records.Message):
                bytes_ = data[entry.start : entry.end] if values else _starred(entry)
                parts.append(repr(bytes_))
    except records.RecordsError:
        if not parts and values:
            return _Code(repr(data))
    return _Code(" + ".join(parts) or "b''")


def _starred(entry: records.Message) -> bytes:
    return encode_messages_like(entry, [_hidden(record) for record in entry.records()])


def _hidden(record: records.Record) -> records.Record:
    def stars(data: bytes | None) -> bytes | None:
        return None if data is None else b"*" * len(data)

    headers = tuple((key if isinstance(key, str) else "*" * len(key), stars(value)) for key, value in record.headers)
    return record._replace(key=stars(record.key), value=stars(record.value), headers=headers)


def _batch(batch: records.Batch, values: bool) -> str:
    rows = []
    for record in batch.records():
        here = record if values or record.control is not None else _hidden(record)
        rows.append(f"Record({here.offset}, {here.timestamp}, {here.key!r}, {here.value!r}, {here.headers!r})")
    kept = {
        "codec": (batch.codec, 0),
        "base_offset": (batch.base_offset, 0),
        "partition_leader_epoch": (batch.partition_leader_epoch, -1),
        "log_append": (batch.timestamp_type == "log_append", False),
        "transactional": (batch.transactional, False),
        "control": (batch.control, False),
        "producer_id": (batch.producer_id, -1),
        "producer_epoch": (batch.producer_epoch, -1),
        "base_sequence": (batch.base_sequence, -1),
    }
    more = "".join(f", {name}={value}" for name, (value, usual) in kept.items() if value != usual)
    return f"encode_batch([{', '.join(rows)}]{more})"
