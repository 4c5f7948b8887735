"""CPU of `--help` and of a completion in the shell, user and system, and how long one waits for a proxy and for pytest: medians of
interleaved rounds.

    python bench/ui/commands.py [--rounds 9] [--json]

Goals: 0.4 s for help, 0.25 s for a completion; a proxy listens after 0.5 s; the plugin costs a run of pytest that does not use it 0.03 s
of CPU. Beside them: Python alone, and Python with typer and rich.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
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


WAITS = {"a proxy listens, wall time": 0.5, "pytest": None, "pytest without the plugin": None}
"""What is measured -> its goal in seconds."""


def seconds(call: Call) -> float:
    """CPU of one call."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(call.command, env=os.environ | call.settings, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def until_listening() -> float:
    """Wall seconds until `barnabas proxy` says that it listens."""
    started = time.perf_counter()
    words = [sys.executable, "-m", "barnabas", "proxy", "--broker", "127.0.0.1:9", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as proxy:
        assert proxy.stdout is not None
        next(line for line in proxy.stdout if "listening" in line)
        took = time.perf_counter() - started
        proxy.terminate()
    return took


def of_pytest(folder: str, *options: str) -> float:
    """CPU of a run of one empty test."""
    return seconds(Call([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", folder, *options, folder]))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found: dict[str, list[float]] = {name: [] for name in (*CALLS, *WAITS)}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "test_nothing.py").write_text("def test_nothing(): pass\n")
        for _ in range(given.rounds):
            for name, call in CALLS.items():
                found[name].append(seconds(call))
            for name, taken in zip(WAITS, (until_listening(), of_pytest(folder), of_pytest(folder, "-p", "no:barnabas")), strict=True):
                found[name].append(taken)
    medians = {name: statistics.median(each) for name, each in found.items()}
    if given.json:
        print(json.dumps(medians))
        return
    for name, median in medians.items():
        goal = CALLS[name].goal if name in CALLS else WAITS[name]
        print(f"{name:<26} {median:6.3f} s" + ("" if goal is None else f"   goal {goal} s{' !' * (median > goal)}"))


if __name__ == "__main__":
    main()
