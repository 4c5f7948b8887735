"""A schema registry over HTTP: real REST shapes from a small server on the loopback, and one that means harm."""

from __future__ import annotations

import base64
import io
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import fastavro
import pytest
from barnabas.captures.reading import schema_registry as module
from barnabas.captures.reading.schema_registry import Registry
from barnabas.decoder.values import FirstOf, SchemaError, SchemaFiles, read_schema, view
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

MONEY = {"type": "record", "name": "shop.Money", "fields": [{"name": "cents", "type": "long"}]}
ORDER = {
    "type": "record",
    "name": "shop.Order",
    "fields": [{"name": "id", "type": "int"}, {"name": "price", "type": "shop.Money"}],
}
Answer = tuple[int, object] | Callable[[BaseHTTPRequestHandler], None]


class Server(ThreadingHTTPServer):
    """Answers from a dict of paths, and remembers what was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.asked: list[str] = []
        self.authorization: list[str | None] = []
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        self.server.authorization.append(self.headers["Authorization"])
        missing: Answer = (404, {"error_code": 40403, "message": "Schema not found"})
        answer = self.server.answers.get(self.path, missing)
        if callable(answer):
            answer(self)
            return
        status, body = answer
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def framed(schema_id: int, payload: bytes) -> bytes:
    return struct.pack(">bI", 0, schema_id) + payload


def avro(schema: object, value: object, *needs: object) -> bytes:
    named: dict[str, object] = {}
    for each in needs:
        fastavro.parse_schema(each, named)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema, named), value)
    return out.getvalue()


def test_avro_by_its_id_is_asked_for_once(server):
    server.answers["/schemas/ids/7"] = (200, {"schema": json.dumps(MONEY)})
    registry = Registry(server.url)
    for cents in (1, -5, 2**40):
        found = view(framed(7, avro(MONEY, {"cents": cents})), registry=registry)
        assert (found.kind, found.value, found.schema_id, found.note) == ("confluent-avro", {"cents": cents}, 7, "")
    assert server.asked == ["/schemas/ids/7"]
    assert server.authorization == [None]


def test_avro_with_references(server):
    answer = {"schema": json.dumps(ORDER), "references": [{"name": "shop.Money", "subject": "money/v", "version": 3}]}
    server.answers["/schemas/ids/9"] = (200, answer)
    server.answers["/subjects/money%2Fv/versions/3"] = (
        200,
        {"subject": "money/v", "version": 3, "id": 8, "schema": json.dumps(MONEY)},
    )
    value = {"id": 4, "price": {"cents": 99}}
    found = view(framed(9, avro(ORDER, value, MONEY)), registry=Registry(server.url))
    assert (found.kind, found.value) == ("confluent-avro", value)


def test_circular_references_end(server):
    ring = {"schema": json.dumps(MONEY), "references": [{"name": "a", "subject": "a", "version": 1}]}
    server.answers["/schemas/ids/9"] = server.answers["/subjects/a/versions/1"] = (200, ring)
    assert Registry(server.url).schema(9).name == "shop.Money"
    assert server.asked == ["/schemas/ids/9", "/subjects/a/versions/1"]


def proto_files() -> tuple[descriptor_pb2.FileDescriptorProto, descriptor_pb2.FileDescriptorProto]:
    money = descriptor_pb2.FileDescriptorProto(name="money.proto", package="shop", syntax="proto3")
    money.message_type.add(name="Money").field.add(name="cents", number=1, type=3, label=1)
    order = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    order.dependency.extend(["money.proto", "google/protobuf/timestamp.proto"])
    order.message_type.add(name="Other")
    message = order.message_type.add(name="Order")
    message.field.add(name="id", number=1, type=9, label=1)
    message.field.add(name="price", number=2, type=11, label=1, type_name=".shop.Money")
    message.field.add(name="at", number=3, type=11, label=1, type_name=".google.protobuf.Timestamp")
    return money, order


def test_protobuf_in_the_registrys_compiled_form(server):
    money, order = proto_files()
    pool = descriptor_pool.DescriptorPool()
    from google.protobuf import timestamp_pb2

    for file in (timestamp_pb2.DESCRIPTOR.serialized_pb, money.SerializeToString(), order.SerializeToString()):
        pool.AddSerializedFile(file)
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))(id="o-1")
    message.price.cents = 250
    message.at.FromSeconds(1_700_000_000)
    # A registry compiles from text and gives the file the name "default".
    money.name = order.name = "default"
    references = [{"name": "money.proto", "subject": "money", "version": 1}]
    compiled = base64.b64encode(order.SerializeToString()).decode()
    server.answers |= {
        "/schemas/ids/4": (
            200,
            {"schemaType": "PROTOBUF", "schema": 'syntax = "proto3"; ...', "references": references},
        ),
        "/schemas/ids/4?format=serialized": (
            200,
            {"schemaType": "PROTOBUF", "schema": compiled, "references": references},
        ),
        "/subjects/money/versions/1?format=serialized": (
            200,
            {"schemaType": "PROTOBUF", "schema": base64.b64encode(money.SerializeToString()).decode()},
        ),
    }
    found = view(framed(4, b"\x02\x02" + message.SerializeToString()), registry=Registry(server.url))
    value = {"id": "o-1", "price": {"cents": "250"}, "at": "2023-11-14T22:13:20Z"}
    assert (found.kind, found.value, found.note) == ("confluent-protobuf", value, "shop.Order")


def test_protobuf_as_source_text_only(server):
    server.answers["/schemas/ids/4"] = (200, {"schemaType": "PROTOBUF", "schema": 'syntax = "proto3";'})
    server.answers["/schemas/ids/4?format=serialized"] = server.answers["/schemas/ids/4"]
    found = view(framed(4, b"\0"), registry=Registry(server.url))
    assert found.kind == "confluent" and "make a descriptor set with protoc" in found.note


def test_json_schema(server):
    server.answers["/schemas/ids/5"] = (200, {"schemaType": "JSON", "schema": '{"type": "object"}'})
    found = view(framed(5, b'{"a": [1, null]}'), registry=Registry(server.url))
    assert (found.kind, found.value) == ("confluent-json", {"a": [1, None]})
    wrong = view(framed(5, b"{"), registry=Registry(server.url))
    assert wrong.kind == "hex" and wrong.note.startswith("does not match schema 5")


def test_an_unknown_id_is_reported_and_not_requested_again(server):
    registry = Registry(server.url)
    for _ in range(3):
        found = view(framed(77, b"abc"), registry=registry)
        assert found.kind == "confluent"
        assert found.note == f"schema 77: {server.url} answers HTTP 404, 'Schema not found'"
    assert server.asked == ["/schemas/ids/77"]


@pytest.mark.parametrize(
    ("auth", "user", "sent"),
    [
        (("ann", "sec:ret"), "", "Basic " + base64.b64encode(b"ann:sec:ret").decode()),
        ("token-sec:ret", "", "Bearer token-sec:ret"),
        (None, "ann:sec%3Aret@", "Basic " + base64.b64encode(b"ann:sec:ret").decode()),
    ],
)
def test_credentials_are_sent_and_never_shown(server, auth, user, sent):
    server.answers["/schemas/ids/7"] = (401, {"error_code": 401, "message": "Unauthorized"})
    registry = Registry(server.url.replace("//", f"//{user}"), auth)
    with pytest.raises(SchemaError) as caught:
        registry.schema(7)
    assert server.authorization == [sent]
    for text in (str(caught.value), repr(registry), registry.place):
        assert "ret" not in text and "ann" not in text and server.url in text


@pytest.mark.parametrize(
    "url",
    ["localhost:8081", "ftp://h", "http://", "http://h:99999", "http://ann:secret@h/?x=1", "file:" + "///x"],
)
def test_invalid_urls_are_refused(url):
    with pytest.raises(SchemaError, match=r"http://HOST:PORT") as caught:
        Registry(url)
    assert "secret" not in str(caught.value)


def redirect(to: str) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(307)
        handler.send_header("Location", to)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


def test_redirects_stay_at_the_same_place(server):
    server.answers["/schemas/ids/1"] = redirect("/elsewhere")
    server.answers["/schemas/ids/2"] = redirect(f"{server.url}/elsewhere")
    server.answers["/elsewhere"] = (200, {"schema": '"string"'})
    registry = Registry(server.url, ("ann", "secret"))
    assert registry.schema(1).kind == registry.schema(2).kind == "avro"
    other = Server()
    try:
        server.answers["/schemas/ids/3"] = redirect(f"{other.url}/schemas/ids/3")
        server.answers["/schemas/ids/4"] = redirect("/schemas/ids/4")
        with pytest.raises(SchemaError, match="another host"):
            registry.schema(3)
        with pytest.raises(SchemaError, match="redirects endlessly"):
            registry.schema(4)
        assert other.asked == []
    finally:
        other.server_close()


def test_an_answer_that_is_too_long(server, monkeypatch):
    monkeypatch.setattr(module, "MOST_BYTES", 1000)
    server.answers["/schemas/ids/1"] = (200, {"schema": "x" * 1000})
    with pytest.raises(SchemaError, match="more than 1000 bytes"):
        Registry(server.url).schema(1)


def drip(handler: BaseHTTPRequestHandler) -> None:
    try:
        for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b" " * 10_000:
            handler.wfile.write(bytes([byte]))
            time.sleep(0.02)  # less than its timeout, so that no single read takes too long
    except OSError:
        pass


def test_a_server_that_drips_is_cut_off(server):
    server.answers["/schemas/ids/1"] = drip
    with pytest.raises(SchemaError, match="did not answer in time"):  # the whole of it takes minutes
        Registry(server.url, timeout=0.3).schema(1)


def test_a_registry_that_is_down_is_left_alone_for_a_while(monkeypatch):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        registry = Registry(f"http://127.0.0.1:{unused.getsockname()[1]}")
        asked = []
        read = registry._read
        monkeypatch.setattr(registry, "_read", lambda schema_id: asked.append(schema_id) or read(schema_id))
        notes = {view(framed(schema_id, b"x"), registry=registry).note for schema_id in (5, 6, 7)}
        assert len(notes) == 3 and all("cannot be reached" in note for note in notes)
        assert asked == [5]
        monkeypatch.setattr(module, "PAUSE", 0.0)
        registry._down = None
        for _ in range(2):
            view(framed(5, b"x"), registry=registry)
        assert asked == [5, 5, 5]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((200, b"<html>"), "is it a schema registry"),
        ((200, b"[" * 100_000), "is it a schema registry"),
        ((200, {"no": "schema"}), "contains no schema"),
        ((200, {"schema": "{"}), "not an Avro schema"),
        ((200, {"schema": '{"type": "record"}'}), "not an Avro schema"),
        ((200, {"schema": '"string"', "references": {"a": 1}}), "references in an unknown form"),
        ((200, {"schema": '"string"', "references": [1]}), "references in an unknown form"),
        ((200, {"schemaType": "THRIFT", "schema": ""}), "unknown type 'THRIFT'"),
        ((500, b"\xff"), "answers HTTP 500"),
    ],
)
def test_invalid_answers_are_reported(server, answer, message):
    server.answers["/schemas/ids/1"] = answer
    with pytest.raises(SchemaError, match=message):
        Registry(server.url).schema(1)
    assert view(framed(1, b"x"), registry=Registry(server.url)).kind == "confluent"


def test_ids_are_limited(server, monkeypatch):
    monkeypatch.setattr(module, "MOST_IDS", 3)
    registry = Registry(server.url)
    for schema_id in range(1, 9):
        with pytest.raises(SchemaError):
            registry.schema(schema_id)
    assert len(server.asked) == 3


def test_a_path_in_the_url_is_kept_and_files_come_first(server):
    server.answers["/apis/ccompat/v7/schemas/ids/7"] = (200, {"schema": json.dumps(MONEY)})
    files = SchemaFiles()
    files.add(read_schema("order.avsc", json.dumps(MONEY).encode()), "plain")
    source = FirstOf(files, Registry(f"{server.url}/apis/ccompat/v7/"))
    assert view(framed(7, b"\x02"), registry=source, topic="other").kind == "confluent-avro"
    assert view(b"\x02", registry=source, topic="plain").kind == "avro"
