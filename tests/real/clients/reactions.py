"""A JVM with Kafka's own client that is sent orders and reports their results (java/Reactions.java)."""

from __future__ import annotations

import queue
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.waiting import PATIENCE
from real.clients import java_programs

Java = Callable[..., list[str]]
"""``java(what, topic, count, **settings)``: what became of it, in words."""


@contextmanager
def reacting(bootstrap: str, directory: Path) -> Iterator[Java]:
    """`directory`: for what it logs."""
    log = directory / "log"
    with log.open("w") as errors:
        command = java_programs.command("Reactions", java_programs.broker_jars())
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)
    assert process.stdin is not None and process.stdout is not None
    answers: queue.Queue[str] = queue.Queue()
    lines = process.stdout
    threading.Thread(target=lambda: [answers.put(line) for line in lines], daemon=True).start()
    order = process.stdin

    def ask(what: str, topic: str, count: int, **settings: Any) -> list[str]:
        named = [f"{name.replace('_', '.')}={value}" for name, value in settings.items()]
        print(what, bootstrap, topic, count, *named, file=order, flush=True)
        try:
            return answers.get(timeout=3 * PATIENCE).rstrip("\n").split("\t")
        except queue.Empty:
            raise AssertionError(log.read_text()[-2000:]) from None

    try:
        yield ask
    finally:
        order.close()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        lines.close()


def sent(became: list[str]) -> list[str]:
    """Without the reports of throttling."""
    return [each for each in became if not each.startswith("throttled")]
