"""No string of any message of any version is copied, but for the words that are Kafka's own; and no length changes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from barnabas import decoder
from barnabas.captures.replay import roles
from barnabas.captures.transform.fields import RedactionKind, Replacement, rule_of
from barnabas.captures.transform.messages import Frames
from barnabas.captures.transform.pseudonyms import Pseudonyms
from barnabas.decoder import Exchange, State
from barnabas.decoder.codec.payload import definition, names
from barnabas.decoder.schema import facts
from barnabas.decoder.schema.meaning import Meaning
from barnabas.decoder.schema.plan import FieldPlan, StructPlan, extra_plan, plan


@cache
def pseudonyms() -> Pseudonyms:
    """Not made while tests are collected: a salt is stretched slowly on purpose."""
    return Pseudonyms(b"salt")


APIS = facts.api_keys()
# Credentials are masked by the recorder, and telemetry is emptied; both are known by their field's meaning.
_EMPTIED = Replacement.METRICS


class Filler:
    """Values for every field of a struct; each string and each piece of bytes is one of its own."""

    def __init__(self) -> None:
        self.texts: dict[str, tuple[str, Replacement | None]] = {}
        self.count = 0

    def struct(self, of: StructPlan, inside_of: str = "", path: str = "") -> dict[str, Any]:
        return {f.name: self.field(of, f, inside_of, f"{path}{f.name}") for f in of.fields}

    def field(self, of: StructPlan, field: FieldPlan, inside_of: str, path: str) -> Any:
        if field.struct is not None:
            inner = self.struct(field.struct, field.name, path + ".")
            return [inner] if field.array else inner
        value = self.value(of, field, inside_of, path)
        return [value] if field.array else value

    def value(self, of: StructPlan, field: FieldPlan, inside_of: str, path: str) -> Any:
        if field.type == "string":
            return self.one(of, field, inside_of, path)
        if field.type == "bytes":
            return self.one(of, field, inside_of, path).encode()
        if field.type == "records":
            return None if field.nullable else b""
        if field.type == "uuid":
            return bytes(range(16))
        if field.type == "bool":
            return True
        return 0.0 if field.type.startswith("float") else 1

    def one(self, of: StructPlan, field: FieldPlan, inside_of: str, path: str) -> str:
        self.count += 1
        text = f"zq{self.count:04d}xj"
        place = rule_of(field)
        self.texts[text] = path, place.replacement if place else None
        return text


@pytest.mark.parametrize("key", APIS, ids=facts.api_name)
def test_nothing_is_left_of_any_string(key: int) -> None:
    for kind in ("request", "response"):
        for version in getattr(facts.api(key), kind).versions.every():
            filler = Filler()
            of = plan(kind, key, version)
            fields = filler.struct(of.root)
            frames = Frames(pseudonyms(), frozenset(RedactionKind))
            if kind == "request":
                frame = decoder.encode_request(key, version, fields, correlation_id=7, client_id="zqclientxj")
                filler.texts["zqclientxj"] = "client_id", Replacement.NAME
                exchange = Exchange(api_key=key, api_version=version, request=frame)
                new = frames.request(exchange)
                message = decoder.decode_request(new)
            else:
                frame = decoder.encode_response(key, version, fields, correlation_id=7)
                exchange = Exchange(api_key=key, api_version=version, response=frame, state=State.PAIRED)
                new = frames.response(exchange)
                message = decoder.decode_response(new, api_key=key, api_version=version)
            assert message.plan.version == version
            for text, (path, replacement) in filler.texts.items():
                if replacement is Replacement.KAFKAS:
                    assert text.encode() in new, f"{of.name} v{version} {path}"
                else:
                    assert text.encode() not in new, f"{of.name} v{version} {path} is copied"
            emptied = any(replacement is _EMPTIED for _, replacement in filler.texts.values())
            assert emptied or len(new) == len(frame), f"{of.name} v{version}"


@pytest.mark.parametrize("name", names())
def test_nothing_is_left_of_any_payload(name: str) -> None:
    from barnabas.decoder.codec.payload import _files

    for version in definition(name).versions.every():
        filler = Filler()
        of = extra_plan(_files()[name], name, version)
        data = decoder.embedded.encode(name, version, filler.struct(of.root))
        frames = Frames(pseudonyms(), frozenset(RedactionKind))
        new = frames.payload(decoder.embedded.decode(name, version, data))
        assert len(new) == len(data)
        for text, (path, replacement) in filler.texts.items():
            assert (text.encode() in new) == (replacement is Replacement.KAFKAS), f"{name} v{version} {path}"


def _roles() -> Iterator[tuple[str, FieldPlan]]:
    for key in APIS:
        for kind in ("request", "response"):
            for version in getattr(facts.api(key), kind).versions.every():
                of = plan(kind, key, version)
                for place in roles.places(kind, key, version):
                    struct, field = of.root, of.root.fields[place.steps[0]]
                    for step, following in zip(place.steps, place.steps[1:], strict=False):
                        inner = struct.fields[step].struct
                        assert inner is not None
                        struct, field = inner, inner.fields[following]
                    yield f"{of.name} v{version} {place.path}", field


def test_field_rules_agree_with_the_roles_of_a_replay() -> None:
    meant = {
        Meaning.TOPIC: RedactionKind.TOPICS,
        Meaning.GROUP: RedactionKind.GROUPS,
        Meaning.TRANSACTIONAL_ID: RedactionKind.TRANSACTIONS,
        Meaning.MEMBER_ID: RedactionKind.CLIENTS,
        Meaning.HOST: RedactionKind.HOSTS,
        Meaning.RACK: RedactionKind.CLUSTERS,
        Meaning.CLUSTER_ID: RedactionKind.CLUSTERS,
        Meaning.TOKEN: RedactionKind.USERS,
    }
    seen = set()
    for path, field in _roles():
        if field.meaning in meant and field.type == "string":
            place = rule_of(field)
            assert place is not None, path
            assert meant[field.meaning] in place.kinds, path
            assert place.replacement is not Replacement.KAFKAS
            seen.add(field.meaning)
    assert seen == set(meant)
