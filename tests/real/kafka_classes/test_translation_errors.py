"""Which error codes the clients of a release know, by Kafka's own classes of that release."""

from __future__ import annotations

import pytest
from barnabas.decoder.schema import facts
from barnabas.plugins.translation.error_codes import changes
from real.clients import java_programs


@pytest.mark.parametrize(("release", "api", "version"), [("0.8.2.2", "Fetch", 0), pytest.param("0.10.2.2", "Fetch", 3, marks=pytest.mark.slow)])
def test_a_release_gets_only_codes_that_it_knows(release, api, version):
    output = java_programs.run("ErrorCodes", java_programs.jars_of(release))
    known = {int(line.split()[0]) for line in output.splitlines()}
    changed = changes(facts.api_key(api), version)
    # Fetch 0 was the newest until 0.8.2, Fetch 3 until 0.10.2. Java's table of 0.8.2 lacks what only consumers met, which
    # were in Scala then; the newest code is the same.
    assert max(code for code in facts.errors() if code not in changed) == max(known)
    assert max(changed.values()) <= max(known)
    assert not set(changed) & known
