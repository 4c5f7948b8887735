"""``barnabas translate``: what it says is what the translator does."""

from __future__ import annotations

import json
import subprocess

from barnabas import decoder
from barnabas.decoder.reference import releases
from barnabas.decoder.schema import facts
from barnabas.plugins.translation import Answered, Translator, served_by
from harness import commands


def barnabas(*arguments: str) -> subprocess.CompletedProcess[str]:
    return commands.run("translate", *arguments)


def test_the_list_agrees_with_the_translator():
    done = barnabas("4.3", "0.10.2", "--json")
    assert done.returncode == 0, done.stderr
    between = Translator(served_by(releases.release("0.10.2").offered))
    seen = set()
    for each in json.loads(done.stdout)["apis"]:
        key = facts.api_key(each["api"])
        by_version = dict.fromkeys(each["served"], "served")
        by_version |= {one["version"]: one["as"] for one in each["translated"]}
        by_version |= {one["version"]: "refused" for one in each["refused"]}
        for version, served in by_version.items():
            found = between.request(decoder.encode_request(key, version, {}))
            if isinstance(found, Answered):
                # what asks for nothing is answered at once
                assert served == "refused" if found.refusal else isinstance(served, int), (each["api"], version)
            elif found is not None and each["api"] != "ApiVersions":
                assert {one.served for one in found.asked} == {served}, (each["api"], version)
            elif found is None:
                assert served == "served", (each["api"], version)
            seen.add(served)
    assert {"served", "refused", 0, 1, 2} <= seen


def test_for_people():
    done = barnabas("0.9.0", "4.3")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[lines.index("Produce") + 1] == "  v0-1 as 3"
    assert lines[lines.index("ListOffsets") + 1] == "  v0 as 1"
    everything = barnabas("0.9.0", "4.3", "--all").stdout
    assert "  v0 unchanged\n" in everything
