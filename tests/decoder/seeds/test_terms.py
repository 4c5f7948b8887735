"""Every field and term of the five seed texts is explained: by `explain`, and beside its field by `schema show`.

The transcriptions have the texts' grammars; ``TERMS`` has the terms of their sentences and tables. Where the texts are, their
own grammars and tables are read again, so that no field is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from barnabas.decoder.reference import explain, fields
from barnabas.decoder.reference.definitions import drafts
from barnabas.decoder.reference.explain import ApiText, DraftText, FieldText, KipText, find
from barnabas.decoder.reference.fields import by_former_name
from barnabas.decoder.schema import facts
from barnabas.decoder.schema.notation import Definition, FieldLine, parse, snake_case
from barnabas.ui.cli.protocol import schema

HERE = Path(__file__).parent
SEEDS = HERE.parents[3] / "shared" / "reference" / "seeds"
NAMES = ("000", "001", "002", "003", "004")
CHANGED = re.compile(
    r"00\d (?:request|response) (?P<api>[\w.-]+) \S+ (?P<path>\S+) name (?P<theirs>\w+) -> (?P<ours>\w+) : .*"
)
# Terms that stand in the texts' sentences and tables only, and a word that their explanation has.
TERMS = {
    "message_size": "bytes",
    "RequestOrResponse": "header",
    "required_acks": "replicas",
    "Request Header": "client_id",
    "AlterTopic": "number of partitions",
    "ListTopicsRequest": "names of all topics",
    "ReassignPartitionsRequest": "does not wait",
    "VerifyReassignPartitionsRequest": "how far",
    "CreateTopicRequest": "topics",
    "Dead": "does not exist",
    "Stable": "has its assignment",
    "PreparingRebalance": "joining",
    "AwaitingSync": "CompletingRebalance",
    "COMMIT": "commits",
    "ABORT": "aborts",
    "READ_COMMITTED": "visible",
    "READ_UNCOMMITTED": "visible",
    "payload": "delete marker",
    "delete marker": "removes the key",
    "KAFKA-2945": "administration over the protocol",
    "KAFKA-2946": "administration over the protocol",
    "KAFKA-3304": "versions",
    "KAFKA-3307": "versions",
}


def grammars(seed: str) -> list[Definition]:
    return parse((HERE / "texts" / f"{seed}.kafka").read_text("utf-8"), seed)


def names_of(lines: tuple[FieldLine, ...]) -> Iterator[str]:
    for line in lines:
        if line.name != "_":
            yield line.name
        yield from names_of(line.fields)


def words_of(found: list[explain.Explanation]) -> str:
    return " ".join(str(each) for each in found)


@pytest.mark.parametrize("seed", NAMES)
def test_every_field_and_message_is_explained(seed: str):
    for grammar in grammars(seed):
        for name in (grammar.name, *names_of(grammar.fields)):
            found = find(name)
            assert not isinstance(found[0], FieldText) or found[0].text, name


@pytest.mark.parametrize(("term", "word"), TERMS.items())
def test_every_term_is_explained(term: str, word: str):
    assert word in words_of(find(term))


def test_a_renamed_field_is_explained_by_todays_of_that_api():
    changes = [match for line in (HERE / "texts" / "differences.txt").read_text("utf-8").splitlines() if (match := CHANGED.fullmatch(line.strip()))]
    assert len(changes) > 250
    became = {"Offsets": "ListOffsets", "GroupCoordinator": "FindCoordinator", "DescribeGroup": "DescribeGroups", "ApiVersion": "ApiVersions"}
    for each in changes:
        if each["path"] == "." or each["theirs"] == "_":
            continue
        api = became.get(each["api"], each["api"])
        today = {(place.api, found.name) for found in find(each["theirs"]) if isinstance(found, FieldText) for place in found.places}
        assert (api, each["ours"]) in today, each.string


def test_structs_that_are_gone_are_explained_by_their_fields():
    assert {each.path.rpartition(".")[2] for each in by_former_name()["coordinator"]} == {"node_id", "host", "port"}
    of_header = next(
        line for grammar in grammars("003") if grammar.name == "Fetch" and grammar.kind == "response" and 5 in grammar.versions
        for line in grammar.fields[1].fields[1].fields if line.name == "partition_header"
    )  # fmt: skip
    today = {each.path.rpartition(".")[2] for each in by_former_name()["partition_header"]}
    renamed = {"partition": "partition_index"}
    assert {renamed.get(line.name, line.name) for line in of_header.fields} <= today


@pytest.mark.parametrize("name", drafts.names())
def test_every_field_of_a_draft_is_described(name: str, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    assert isinstance(explain.draft(name), DraftText) and find(name) == [explain.draft(name)]
    assert not [each.path for each in fields.fields(name).values() if not each.text]
    for version in drafts.versions(name).every():
        schema.show(name, version)
        assert undescribed(capsys.readouterr().out) == []


def test_schema_show_describes_every_field_of_the_pages(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    shown = {
        (facts.api_name(grammar.key), version)
        for seed in ("002", "003")
        for grammar in grammars(seed)
        if grammar.key is not None
        for version in grammar.versions.every()
    }
    assert len(shown) > 65
    for api, version in sorted(shown):
        schema.show(api, version)
        assert undescribed(capsys.readouterr().out) == [], (api, version)


def undescribed(page: str) -> list[str]:
    """The lines of fields with nothing beside them or below them."""
    lines = page.splitlines()
    rows = [re.fullmatch(r" +(\w+)  +((?:\[\])?\w+\??(?: tag \d+)?(?: = \S+)?(?: \(\w+\))?)(.*)", line) for line in lines]
    return [line for line, row, after in zip(lines, rows, [*lines[1:], ""], strict=True)
            if row is not None and not row[3].strip() and not after.startswith(" " * 6 + " ")]  # fmt: skip


def test_values_and_what_null_means():
    state = next(each for each in find("group_state") if isinstance(each, FieldText) and each.text)
    assert {"Dead", "Stable", "PreparingRebalance", "AwaitingSync"} <= dict(state.values).keys()
    for field in ("committed", "transaction_result"):
        assert next(each.values for each in find(field) if isinstance(each, FieldText)) == (("false", "ABORT"), ("true", "COMMIT"))
    (create,) = [each for each in find("timeout_ms") if isinstance(each, FieldText) and each.places[0].api == "CreateTopics"]
    assert "0 or less" in create.text


def test_issues_are_explained_by_their_proposal():
    (found,) = find("kafka-3304")
    assert isinstance(found, KipText) and found.name == "KIP-35"
    assert isinstance(find("CreateTopic")[0], ApiText)


@pytest.mark.parametrize("seed", NAMES)
def test_the_texts_have_no_other_field_or_issue(seed: str):
    (path,) = list(SEEDS.glob(f"{seed}_*.txt")) or pytest.skip("the seed texts are not on this machine")
    text = path.read_text("utf-8")
    known = {name for grammar in grammars(seed) for name in (grammar.name, *names_of(grammar.fields))}
    found = set(re.findall(r"(?m)^\s*(\w+)\s*=>", text)) | set(re.findall(r"(?m)^\|? ?([a-z]+(?:_[a-z]+)+) \|", text))
    found -= {"RequestOrResponse", "Size"}  # the frame
    left = {re.sub("(?<=.)(Request|Response)$", "", name) for name in found} - known
    issues = set(re.findall(r"KAFKA-\d+", text))
    for name in left | issues:
        if snake_case(name) not in known:
            assert find(name), name
