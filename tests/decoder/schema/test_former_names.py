"""Names that APIs and error codes had in older releases are taken wherever a name is; those of fields only by `explain`."""

from __future__ import annotations

import pytest
from barnabas.decoder.filter import FilterError, compile, complete
from barnabas.decoder.schema import facts
from barnabas.plugins.conditions.input_value import InvalidInput, from_plain

LOOKED_UP = [former for former in facts.former_names() if former.kind != "field"]


def test_the_table():
    today = {"api": set(map(facts.api_name, facts.api_keys())), "error": {fact.name for fact in facts.errors().values()}}
    known = set()
    for former in LOOKED_UP:
        assert former.today in today[former.kind] and former.where
        assert former.name.lower() not in {name.lower() for name in today[former.kind]}
        assert (former.kind, former.name.lower()) not in known
        known.add((former.kind, former.name.lower()))


@pytest.mark.parametrize("former", LOOKED_UP, ids=lambda former: former.name)
def test_lookups_take_them(former: facts.FormerName):
    lookup, name_of, field = (
        (facts.api_key, facts.api_name, "api") if former.kind == "api" else (facts.error_code, facts.error_name, "err")
    )
    for written in (former.name, former.name.lower()):
        assert name_of(lookup(written)) == former.today
        assert facts.former_name(former.kind, written) == former
        compile(f"{field} == {written}")
    assert former.name in {offer.text for offer in complete(f"{field} == {former.name[:-1]}")}
    if former.kind == "error":
        assert from_plain(former.name).error_code() == lookup(former.today)


def test_a_filter_means_todays_name():
    for old, new in (("api == Offsets", "api == ListOffsets"), ("err in {UNKNOWN, NO_ERROR}", "err in {UNKNOWN_SERVER_ERROR, NONE}")):
        assert compile(old).tree.value == compile(new).tree.value


def test_unknown_names_get_the_nearest():
    with pytest.raises(KeyError, match="did you mean ListOffsets"):
        facts.api_key("ListOffsetz")
    with pytest.raises(KeyError, match="did you mean FindCoordinator"):
        facts.api_key("GroupCordinator")
    with pytest.raises(FilterError, match="did you mean NOT_LEADER"):
        compile("err == NOT_LEADER_FR_PARTITION")
    with pytest.raises(InvalidInput, match="unknown error"):
        from_plain("NOT_LEADERS").error_code()
    assert facts.former_name("api", "NOT_LEADER_FOR_PARTITION") is None
