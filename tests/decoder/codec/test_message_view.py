"""Views of messages: no forbidden null, no unknown tag, and all else as it was read."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

import pytest
from barnabas.decoder import decode_body
from barnabas.decoder.codec.encode import UNKNOWN_TAGS
from barnabas.decoder.codec.message_view import lists_at, view_of
from barnabas.decoder.codec.project import first_error, values_at
from barnabas.decoder.schema import facts
from barnabas.decoder.schema.plan import StructPlan, field_paths, plan
from traffic.unusual_messages import Message, every_version, nulls, unusual


def _read(message: Message) -> Any:
    of = message.of
    return decode_body(of.kind, of.api_key, of.version, message.body())


def _wrong(plan: StructPlan, values: tuple[Any, ...], path: str = "") -> Iterator[str]:
    """Nulls where the plan has none, and unknown tags."""
    if plan.flexible and values[-1]:
        yield f"{path} has unknown tags"
    for field, value in zip(plan.fields, values, strict=False):
        if value is None:
            if not field.nullable:
                yield f"{path}.{field.name} is null"
            continue
        for item in value if field.array else (value,):
            if item is None:
                yield f"{path}.{field.name} has a null item"
            elif field.struct is not None:
                yield from _wrong(field.struct, item, f"{path}.{field.name}")


def _names(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value
        for item in value.values():
            yield from _names(item)
    elif isinstance(value, list):
        for item in value:
            yield from _names(item)


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["request", "response"])
def test_views_of_every_message(kind: str, every: int) -> None:
    tagged = null = 0
    for key, version in itertools.islice(every_version(), 0, None, every):
        for message in (*unusual(kind, key, version), *nulls(kind, key, version)):
            read = _read(message)
            view = view_of(read)
            assert list(_wrong(view.plan.root, view.values)) == []
            assert UNKNOWN_TAGS not in set(_names(view.to_dict()))
            assert list(view.forbidden_nulls()) == list(read.forbidden_nulls())
            assert view.encode() == read.encode()
            wrong = list(_wrong(read.plan.root, read.values))
            assert read.sound is not bool(wrong)
            if not wrong:
                assert view.values is read.values
            null += any("null" in each for each in wrong)
            tagged += any("tags" in each for each in wrong)
    assert null > 300 // every and tagged > 100 // every


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_the_first_error_of_every_response(every: int) -> None:
    """Outer fields before nested ones, and of these a field in all items before the next field."""
    found = 0
    for key, version in itertools.islice(every_version(), 0, None, every):
        fields = [each.path for each in field_paths(plan("response", key, version).root)]
        for message in (*unusual("response", key, version), *nulls("response", key, version)):
            read = _read(message)
            errors = [(re.sub(r"\[\d+\]", "", path), code) for path, code in read.errors()]
            errors.sort(key=lambda each: (each[0].count("."), fields.index(each[0])))
            assert first_error(read) == (errors[0][1] if errors else 0)
            found += bool(errors)
    assert found > 1000 // every


def test_values_by_path_are_those_of_the_view() -> None:
    """Metadata v1: hosts and racks of two brokers, of which the host may not be null and the rack may."""
    of = plan("response", facts.api_key("Metadata"), 1)
    read = _read(Message(of, (((1, None, 9092, None), (2, "two", 9093, "r")), 1, ()), ""))
    paths = ("brokers.node_id", "brokers.host", "brokers.rack")
    assert values_at(of, read.frame, 0, paths) == ([1, 2], [None, "two"], [None, "r"])
    view = view_of(read)
    assert lists_at(view, *paths) == ([1, 2], ["", "two"], [None, "r"])
    assert view["brokers[0].host"] == "" and view["brokers[0].rack"] is None
    assert [broker["host"] for broker in view.to_dict()["brokers"]] == ["", "two"]
