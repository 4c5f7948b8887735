"""Values of records by their schemas, on the command line."""

from __future__ import annotations

import io
import json

import fastavro
from barnabas import decoder

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "item", "type": "string"}, {"name": "n", "type": "int"}],
}


def test_avro_by_a_file(run, tmp_path):
    (tmp_path / "order.avsc").write_text(json.dumps(SCHEMA))
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(SCHEMA), {"item": "lamp", "n": 3})
    batch = decoder.records.encode_batch([decoder.records.Record(0, 1, b"k", out.getvalue())])
    topics = [{"name": "orders", "partition_data": [{"index": 0, "records": batch}]}]
    frame = decoder.encode_request(0, 9, {"acks": 1, "topic_data": topics}).hex()
    plain = json.loads(run("decode", "--hex", frame, "--request", "--json").stdout)
    assert "value" not in plain["topic_data"][0]["partition_data"][0]["records"][0]["records"][0]
    read = json.loads(
        run("decode", "--hex", frame, "--request", "--json", "--show-values", "--schema", "order.avsc=orders").stdout
    )
    record = read["topic_data"][0]["partition_data"][0]["records"][0]["records"][0]
    assert record["value"] == {"kind": "avro", "value": {"item": "lamp", "n": 3}} and record["key"] == "k"
