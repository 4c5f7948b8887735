"""The schema text against Kafka's own definitions, and the notation against itself."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from barnabas.decoder.reference.definitions import importer
from barnabas.decoder.schema import facts, notation

CLIENT_JARS = Path(__file__).parents[3] / ".cache" / "clients"


def own_definitions() -> dict[str, notation.Definition]:
    found = {}
    for key in facts.api_keys():
        api = facts.api(key)
        found[api.request.name], found[api.response.name] = api.request, api.response
    for file in ("headers", "data"):
        found.update(facts.extra(file))
    return found


# Fields that later releases call by another name; the bytes are the same.
RENAMED_SINCE_3_9 = {
    ("VoteRequest", "candidate_epoch", "replica_epoch"),
    ("VoteRequest", "candidate_id", "replica_id"),
    ("VoteRequest", "candidate_directory_id", "replica_directory_id"),
    ("ListConfigResourcesResponse", "client_metrics_resources", "config_resources"),
    ("ListConfigResourcesResponse", "name", "resource_name"),
}


# Names that 4.4 gives to fields of versions that had others before; those versions keep the names they came with.
RENAMED_IN_4_4 = {
    ("TxnOffsetCommitRequest", "generation_id_or_member_epoch", "generation_id"),
    ("StreamsGroupHeartbeatResponse", "acceptable_recovery_lag_legacy", "acceptable_recovery_lag"),
}

# Early-access versions of 3.9 that were laid out anew before they became stable.
CHANGED_PREVIEWS = {("ReadShareGroupStateSummaryResponse", 0)}


def compare(theirs: dict[str, notation.Definition]) -> tuple[int, set[tuple[str, str, str]]]:
    """Every version they hold has the same layout here, field by field: how many, and which names differ."""
    ours = own_definitions()
    count, renamed = 0, set()
    for name, definition in importer.renamed(theirs, ours).items():
        for version in definition.versions.every():
            count += 1
            before, after = importer.layout(definition, version), importer.layout(ours[name], version)
            request = theirs.get(name.replace("Response", "Request"))
            if (name, version) in CHANGED_PREVIEWS and request and request.unstable:
                assert before != after
                continue
            assert len(before) == len(after), f"{name} v{version}"
            for a, b in zip(before, after, strict=True):
                (old, *old_rest), (new, *new_rest) = a.split(), b.split()
                assert old_rest == new_rest, f"{name} v{version}: {a} became {b}"
                for x, y in zip(old.split("."), new.split("."), strict=True):
                    if x != y:
                        renamed.add((name, x, y))
    return count, renamed


def test_same_layouts_as_the_json_of_3_9(reference):
    folder = reference / "kafka-messages-3.9"
    theirs = importer.read_definitions({p.name: p.read_text() for p in folder.glob("*.json")})
    count, renamed = compare(theirs)
    assert count >= 646 and renamed == RENAMED_SINCE_3_9


@pytest.mark.parametrize(
    ("release", "least", "renames"),
    [("3.9.1", 646, RENAMED_SINCE_3_9), ("4.3.1", 604, set()), ("4.4.0", 618, RENAMED_IN_4_4)],
)
def test_same_layouts_as_the_jars(release, least, renames):
    jars = list(CLIENT_JARS.rglob(f"kafka-clients-{release}.jar"))
    assert jars, "the jar is fetched by: make broker"
    with zipfile.ZipFile(jars[0]) as jar:
        names = [n for n in jar.namelist() if n.startswith("common/message/") and n.endswith(".json")]
        theirs = importer.read_definitions({n: jar.read(n).decode() for n in names})
    count, renamed = compare(theirs)
    assert count >= least and renamed == renames
    alarms = {d.message for d in importer.differences(own_definitions(), theirs) if d.alarm}
    assert alarms == ({name for name, _ in CHANGED_PREVIEWS} if release == "3.9.1" else set())


def test_the_notation_survives_writing_and_parsing():
    for definition in own_definitions().values():
        text = notation.write([definition])
        assert notation.parse(text) == [definition]
        assert notation.write(notation.parse(text)) == text


def test_the_schema_is_small():
    files = [p for p in (Path(facts.__file__).parent / "definitions").iterdir() if p.suffix == ".kafka"]
    assert sum(p.stat().st_size for p in files) <= 80_000


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("  Topics", "index out of range"),
        ("  Topics int32 7-", "not a version range"),
        ("  Topics [int32", "not a type"),
        ("   Topics int32", "multiple of two"),
        ("      Topics int32", "too deeply"),
    ],
)
def test_a_bad_line_is_reported_with_its_number(line, message):
    with pytest.raises(notation.NotationError, match=message) as caught:
        notation.parse(f"request XRequest key 1 versions 0 flex none\n  Fine int8\n{line}\n", "x.kafka")
    assert caught.value.line == 3 and str(caught.value).startswith("x.kafka:3: ")


def test_a_changed_layout_is_an_alarm_and_a_new_tag_is_not():
    before = notation.parse("request XRequest key 1 versions 0-1 flex 1+\n  A int8\n")[0]
    wider = notation.parse("request XRequest key 1 versions 0-1 flex 1+\n  A int16\n")[0]
    tagged = notation.parse("request XRequest key 1 versions 0-2 flex 1+\n  A int8\n  B int8 1+ tag0\n")[0]
    alarms = importer.differences({"XRequest": before}, {"XRequest": wider})
    assert [str(d)[:30] for d in alarms if d.alarm] == [
        "ALARM XRequest: version 0 - a ",
        "ALARM XRequest: version 1 - a ",
    ]
    quiet = importer.differences({"XRequest": before}, {"XRequest": tagged})
    assert [d.text for d in quiet] == ["adds versions 2", "version 1 + b int8 compact tag0"] and not any(
        d.alarm for d in quiet
    )


def test_dropped_versions_come_from_the_older_release():
    old = notation.parse("request XRequest key 1 versions 0-3 flex 3+\n  Gone int8 0-1\n  A int16\n  Old string 2+\n")[
        0
    ]
    new = notation.parse("request XRequest key 1 versions 2-4 flex 3+\n  A int16 2+\n  Old string 2+\n  B int8 4+\n")[0]
    union = importer.union({"XRequest": old}, {"XRequest": new})["XRequest"]
    assert union.versions == notation.VersionRange(0, 4)
    for version, side in ((0, old), (1, old), (2, new), (3, new), (4, new)):
        assert importer.layout(union, version) == importer.layout(side, version)


def test_names_of_apis_and_errors():
    assert facts.api_name(3) == "Metadata" and facts.api_key("metadata") == 3
    assert facts.error_name(6) == "NOT_LEADER_OR_FOLLOWER" and facts.errors()[6].retriable
    assert facts.error_name(-1) == "UNKNOWN_SERVER_ERROR" and facts.error_name(4242) == "ERROR(4242)"
    with pytest.raises(KeyError, match="did you mean Produce"):
        facts.api_key("Prodcue")
    with pytest.raises(KeyError, match="did you mean NOT_COORDINATOR"):
        facts.error_code("not_cordinator")
    with pytest.raises(KeyError, match="did you mean NOT_LEADER_OR_FOLLOWER"):
        facts.error_code("NOT_LEADR")  # NOT_CONTROLLER has more letters in common
