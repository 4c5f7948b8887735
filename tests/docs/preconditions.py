"""What the pages take for granted in their Python: names, and files in the working directory."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from barnabas import decoder
from barnabas.captures import Recorder, open_capture
from barnabas.decoder import Direction, records
from barnabas.proxy.events import show
from confluent_kafka import Producer
from google.protobuf import descriptor_pb2
from harness.proxies import Proxy
from harness.waiting import PATIENCE
from harness.wire import with_size

Names = dict[str, Any]
PAUSE_SECONDS = 0.02
"""Between a producer's records: one that sends as fast as it can leaves nothing of two cores to what the examples ask."""
NOW = 1_700_000_000_000_000_000
REQUEST = decoder.encode_request(3, 12, {"topics": [{"name": "orders"}]}, correlation_id=7, client_id="me")
METADATA = {"brokers": [{"node_id": 1, "host": "kafka", "port": 9092}]}
RESPONSE = decoder.encode_response(3, 12, METADATA, correlation_id=7)
HEARTBEAT = bytes.fromhex(
    "036731026d00000000000372310000afc802076f7264657273056f722e2a0672616e67650202610000000201000204010203000100"
)
"""ConsumerGroupHeartbeat v0 of 3.6, and the response of that release."""
HEARTBEAT_RESPONSE = bytes.fromhex(
    "0000000900"
    "00000000000000026d00000001010000138801000200000000000000000000000000000005030000000000000001"
    "000200000000000000000000000000000005020000000200000102ff0000"
)


class ProxyWithTraffic(Proxy):
    """A proxy with a producer, for as long as both are needed."""

    def __enter__(self) -> ProxyWithTraffic:
        super().__enter__()
        self._over = threading.Event()
        self._producing = threading.Thread(target=self._produce)
        self._producing.start()
        return self

    def _produce(self) -> None:
        producer = Producer(
            {"bootstrap.servers": show(self.address), "retry.backoff.ms": 10, "retry.backoff.max.ms": 50}
        )
        while not self._over.wait(PAUSE_SECONDS):
            producer.produce("orders", b"one")
            producer.poll(0)
        producer.purge()

    def __exit__(self, *why: Any) -> None:
        self._over.set()
        self._producing.join()
        super().__exit__(*why)


def bytes_for(source: str) -> Names:
    """`frame` and `data` of the kind that a line of an example wants."""
    answer = HEARTBEAT_RESPONSE if "previews" in source else RESPONSE
    data = with_size(RESPONSE if "from_broker" in source else REQUEST)
    if "decode_body" in source:
        data = HEARTBEAT if "previews" in source else decoder.encode_body("response", 3, 12, METADATA)
    return {"frame": answer if "decode_response" in source else REQUEST, "data": data}


def frames_and_a_recorder() -> Names:
    """Frames, bytes and where they came from."""
    return {
        "body": decoder.encode_body("response", 3, 12, METADATA), "time_ns": NOW, "conn": 1,
        "Direction": Direction, "direction": Direction.REQUEST, "note": "a rule", "correlation_id": 7, "text": "a rule",
        "nbytes": 3, "how": "fin", "recorder": Recorder(Path("written")),
    }  # fmt: skip


def one_exchange() -> Names:
    """The first of a recording."""
    with open_capture("recordings/today") as capture:
        return {"exchange": capture.exchange(1)}


def on_the_usual_port() -> Names:
    """A capture of port 9092: a handshake and an exchange."""
    recorder = Recorder(Path("usual-port"))
    recorder.opened(1, NOW, client=("10.0.0.1", 50001), broker=("10.0.0.9", 9092))
    recorder.data(1, Direction.REQUEST, NOW, with_size(REQUEST))
    recorder.data(1, Direction.RESPONSE, NOW + 1000, with_size(RESPONSE))
    recorder.close()
    (segment,) = Path("usual-port").glob("*.pcapng")
    segment.rename("kafka.pcapng")
    return {}


def records_and_schemas() -> Names:
    """A Produce request's records, and schemas of every kind."""
    Path("keys.avsc").write_text('"string"')
    movement = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    movement.message_type.add(name="Movement")
    Path("stock.desc").write_bytes(descriptor_pb2.FileDescriptorSet(file=[movement]).SerializeToString())
    return {"area": records.encode_messages([records.Record(0, 1000, b"key", b"one")])}


def a_test_of_ones_own() -> Names:
    """It produces a record."""

    def run_my_test(bootstrap: str) -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "client.id": "shop"})
        producer.produce("orders", b"one", b"key")
        assert producer.flush(PATIENCE) == 0

    return {"run_my_test": run_my_test}


def an_export() -> Names:
    """The file that the page writes is not there: a command of another page may have written it."""
    Path("errors.csv").unlink(missing_ok=True)
    return {}


PRECONDITIONS = {
    "python.md": frames_and_a_recorder,
    "export.md": an_export,
    "filter.md": one_exchange,
    "import.md": on_the_usual_port,
    "serve.md": a_test_of_ones_own,
    "values.md": records_and_schemas,
}
"""By page; the others import what they use."""
