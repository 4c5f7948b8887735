"""Payloads inside messages: groups, internal topics, SASL, Envelope and telemetry carry them as plain bytes.

    for path, kind, fields in embedded.of(message):      # every payload of a decoded request or response
        ...
    embedded.of_record("__consumer_offsets", key, value)  # one record of an internal topic
    embedded.of_control(key, value)                       # one record of a control batch
    embedded.sasl_step(token)                             # one SASL token, masked
    embedded.decode("OffsetCommitValue", 3, data)         # any definition by its name; embedded.encode writes it

Bytes that do not match raise a `DecodeError` and nothing else.
"""

from __future__ import annotations

from ..codec.payload import Payload, decode, encode, names
from .find import of
from .groups import assignment, subscription
from .sasl import step as sasl_step
from .telemetry import metrics
from .topics import INTERNAL, of_control, of_record

__all__ = [
    "INTERNAL", "Payload", "assignment", "decode", "encode", "metrics", "names", "of", "of_control", "of_record",
    "sasl_step", "subscription",
]  # fmt: skip
