"""One client and one broker: directly, and at the same time through the proxy and through translation."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from barnabas.proxy import Proxy, ProxyConfig
from barnabas.proxy.events import ConnectionOpened, Event
from barnabas.proxy.relay.negotiation.version_negotiation import VersionsConfig
from harness.testbed import next_event
from harness.waiting import PATIENCE
from matrix import recording, topics
from matrix.brokers import Address
from matrix.stages import EXPECTED, reached
from real.brokers.broker import REPOSITORY

Outcomes = dict[str, Any]


def run_program(command: Sequence[str], bootstrap: str, run: str, patience: float = PATIENCE) -> Outcomes:
    """What a client program reports of its stages; `broken` where it did not end by itself.

    `patience`: how long each of its stages may wait for something; one that never works may take as long.
    """
    seconds = 5 * patience
    path = os.pathsep.join(filter(None, [str(REPOSITORY / "tests"), os.environ.get("PYTHONPATH")]))
    environment = os.environ | {"PYTHONPATH": path, "BARNABAS_TEST_PATIENCE": str(patience)}
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(
            [*command, bootstrap, run], stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment, start_new_session=True
        )
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        out.seek(0), err.seek(0)
        outcomes: Outcomes = {}
        with contextlib.suppress(ValueError, IndexError):
            outcomes = dict(json.loads(out.read().splitlines()[-1]))
        if code is None:
            outcomes["broken"] = f"no result within {seconds:.0f} s"
        elif code or not outcomes:
            outcomes["broken"] = f"ended with {code}: {_last_words(err.read())}"
        return outcomes


def _last_words(text: str) -> str:
    """The line that says why a program ended, of what it wrote to standard error."""
    lines = [line for line in text.splitlines() if line.strip()]
    known = [line for line in lines if line.startswith(("panic:", "thread '", "Exception in"))]
    return (known or lines[-1:] or ["nothing"])[0]


def through(command: Sequence[str], broker: Address, patience: float, translate: bool = False) -> Outcomes:
    """What the program reports behind a proxy, and what the proxy's recording shows."""
    with tempfile.TemporaryDirectory(prefix="barnabas-matrix-") as folder:
        directory = Path(folder) / "recording"
        versions = VersionsConfig(translate=True) if translate else None
        with Proxy(ProxyConfig(upstream=broker, record=directory, lossless=True, versions=versions)) as proxy:
            events = accepting(proxy)
            outcomes = tried(command, broker, proxy.address, patience)
            own = proxy.address
        return {"said": outcomes, **recording.read(directory, own, [*events, *proxy.events()])}


def accepting(proxy: Proxy) -> list[Event]:
    """Wait until the relay has taken a connection, and give the events until then: on a busy machine that may take longer
    than a client waits."""
    events: list[Event] = []
    with socket.create_connection(proxy.address):
        while not (events and isinstance(events[-1], ConnectionOpened)):
            events.append(next_event(proxy, Event))
    return events


def tried(command: Sequence[str], broker: Address, at: Address, patience: float = PATIENCE) -> Outcomes:
    """Make the topics of a run past the proxy, and run the program against that address."""
    run = f"m{uuid.uuid4().hex[:10]}"
    topics.make(broker, [f"{run}-orders", f"{run}-booked"])
    return run_program(command, f"{at[0]}:{at[1]}", run, patience)


def succeeded(outcomes: Outcomes) -> dict[str, bool]:
    """Of each stage that the client has, whether it gave what it must."""
    return {stage: reached(stage, outcomes[stage]) for stage in EXPECTED if stage in outcomes}


def differences(direct: Outcomes, proxied: Outcomes) -> list[str]:
    """What is not the same with the proxy between. Of a failure only its name counts: texts hold addresses; and of what
    came too late only that."""
    found = []
    for stage in sorted({*direct, *proxied} - {"client", "broken"}):
        one, other = (_outcome(outcomes, stage) for outcomes in (direct, proxied))
        if one != other:
            found.append(f"{stage}: {one} directly, {other} through the proxy")
    return found


def worse(direct: Outcomes, translated: Outcomes) -> list[str]:
    """The stages that give what they must directly, and not with translation."""
    after = succeeded(translated)
    return [stage for stage, good in succeeded(direct).items() if good and not after.get(stage)]


LATE = {"Timeout", "TimeoutError", "TimeoutException", "DeadlineExceeded", "_TIMED_OUT", "OperationTimedOut"}


def _outcome(outcomes: Outcomes, stage: str) -> Any:
    outcome = outcomes.get(stage, {"error": "TimeoutError" if "no result" in outcomes.get("broken", "") else "it ended before"})
    name = outcome.get("error", outcome)
    return "too late" if isinstance(name, str) and name in LATE else name


def run_pair(command: Sequence[str], broker: Address, translate: bool = True, patience: float = PATIENCE) -> Outcomes:
    """All results of a pair, as plain values. `translate`: also through translation; `patience`: see `run_program`."""
    began = time.monotonic()
    with ThreadPoolExecutor(3) as together:
        alone = together.submit(tried, command, broker, broker, patience)
        beside = together.submit(through, command, broker, patience)
        other = together.submit(through, command, broker, patience, True) if translate else None
        direct, proxied = alone.result(), beside.result()
        translated = other.result() if other is not None else None
    return {
        "client": direct.get("client") or proxied["said"].get("client"),
        "direct": direct,
        "proxied": proxied,
        "translated": translated,
        "seconds": round(time.monotonic() - began, 1),
    }
