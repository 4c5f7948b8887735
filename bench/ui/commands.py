"""CPU of `--help` and of a completion in the shell, user and system, medians of interleaved rounds.

    python bench/ui/commands.py [--rounds 9] [--json]

Goals: 0.4 s for help, 0.25 s for a completion. Beside them: Python alone, and Python with typer and rich.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

HELP_GOAL, COMPLETION_GOAL = 0.4, 0.25


class Call(NamedTuple):
    """What is started. `goal`: seconds of CPU, None where there is none."""

    command: list[str]
    settings: Mapping[str, str] = MappingProxyType({})
    goal: float | None = None


def helped(*words: str) -> Call:
    return Call([sys.executable, "-m", "barnabas", *words, "--help"], goal=HELP_GOAL)


def completed(*words: str) -> Call:
    settings = {
        "_BARNABAS_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(["barnabas", *words]), "COMP_CWORD": str(len(words)),
    }  # fmt: skip
    return Call([sys.executable, "-c", "import sys; sys.argv = ['barnabas']; from barnabas.ui.cli import main; main()"], settings, COMPLETION_GOAL)


CALLS = {
    "python": Call([sys.executable, "-c", ""]),
    "typer and rich": Call([sys.executable, "-c", "import typer, rich.panel, rich.table"]),
    "--help": helped(), "decode --help": helped("decode"), "proxy --help": helped("proxy"), "rules --help": helped("rules"),
    "de<TAB>": completed("de"), "decode --f<TAB>": completed("decode", "--f"), "proxy --b<TAB>": completed("proxy", "--b"),
    "rules re<TAB>": completed("rules", "re"), "findings --m<TAB>": completed("findings", "--m"),
    "explain NOT_L<TAB>": completed("explain", "NOT_L"),
}  # fmt: skip


def seconds(call: Call) -> float:
    """CPU of one call."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(call.command, env=os.environ | call.settings, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found: dict[str, list[float]] = {name: [] for name in CALLS}
    for _ in range(given.rounds):
        for name, call in CALLS.items():
            found[name].append(seconds(call))
    medians = {name: statistics.median(each) for name, each in found.items()}
    if given.json:
        print(json.dumps(medians))
        return
    for name, median in medians.items():
        goal = CALLS[name].goal
        print(f"{name:<20} {median:6.3f} s" + ("" if goal is None else f"   goal {goal} s{' !' * (median > goal)}"))


if __name__ == "__main__":
    main()
