"""The error table against the newest release."""

from __future__ import annotations

from barnabas.decoder.schema import facts
from real.clients import java_programs


def test_errors_of_the_newest_release():
    output = java_programs.run("ErrorCodes", java_programs.jars_of("4.4.0"))
    theirs = [facts.ErrorFact(int(w[0]), w[1], "retriable" in w) for w in map(str.split, output.splitlines())]
    assert sorted(theirs) == sorted(facts.errors().values())
