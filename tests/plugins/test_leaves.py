"""The fields of every message with the topic around them, against the marks of Kafka's definitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from barnabas.decoder.codec.codec import decode_body
from barnabas.decoder.codec.plan import StructPlan
from barnabas.plugins.actions.leaves import leaves
from harness.generator import Generator, triples


def topics(
    struct: StructPlan, values: tuple[Any, ...], prefix: str, around: str | None
) -> Iterator[tuple[str, str | None]]:
    """Every plain field by its path, with the name that a field marked as a topic's has in the structs around it."""
    fields = list(zip(struct.fields, values, strict=False))
    for field, value in fields:
        if field.entity == "topicName" and isinstance(value, str) and value:
            around = value
    for field, value in fields:
        path = prefix + field.name
        if field.struct is None:
            yield path, around
        elif value is not None:
            for number, item in enumerate(value if field.array else (value,)):
                yield from topics(field.struct, item, f"{path}[{number}]." if field.array else f"{path}.", around)


def test_every_field_has_the_topic_around_it() -> None:
    generator = Generator(11)
    named = 0
    for triple in triples():
        message = decode_body(*triple, generator.body(*triple)[1])
        found = [(leaf.path, leaf.part.pair.topic) for leaf in leaves(message)]
        assert found == list(topics(message.plan.root, message.values, "", None)), triple
        named += sum(topic is not None for _, topic in found)
    assert named > 500
