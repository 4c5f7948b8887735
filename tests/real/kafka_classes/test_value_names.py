"""The names of numbers against Kafka's enumerations."""

from __future__ import annotations

from barnabas.decoder.reference.explanations import texts
from real.clients import java_programs

ONE_SIDE_ALONE = {("UpdateFeatures", "upgrade_type", 0), ("", "acknowledge_types", 0)}
"""Numbers that only one side names: UNKNOWN is never sent, and a gap between acknowledged records is no acknowledgement."""


def test_names_of_the_newest_release():
    output = java_programs.run("ValueNames", java_programs.jars_of("4.4.0"))
    theirs: dict[tuple[str, str], dict[int, str]] = {}
    for api, field, number, name in map(str.split, output.splitlines()):
        theirs.setdefault((api.replace("*", ""), field), {})[int(number)] = name
    assert len(theirs) == 16
    for (api, field), names in theirs.items():
        ours = texts.values()[api, field]
        known = {number for number in names.keys() | ours.keys() if (api, field, number) not in ONE_SIDE_ALONE}
        assert {n: ours.get(n) for n in known} == {n: names.get(n) for n in known}, (api, field)
