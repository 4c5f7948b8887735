"""What was seen, a file for each pair under .cache/matrix/results, so that a run that was stopped goes on."""

from __future__ import annotations

import json
import platform
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from matrix.brokers import BROKERS
from matrix.building import CLIENTS
from real.brokers.broker import REPOSITORY

FOLDER = REPOSITORY / ".cache" / "matrix" / "results"


def _path(folder: str, name: str) -> Path:
    return FOLDER / folder / f"{name}.json"


def has(folder: str, name: str) -> bool:
    """Whether there is one."""
    return _path(folder, name).exists()


def keep(folder: str, name: str, result: dict[str, Any]) -> None:
    """Written in one go: there are only whole results."""
    target = _path(folder, name)
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(".new")
    part.write_text(json.dumps(result, indent=1))
    part.replace(target)


def drop(folder: str, name: str) -> None:
    """What was seen before counts no more."""
    _path(folder, name).unlink(missing_ok=True)


def _read(folder: str, name: str) -> Any:
    return json.loads(_path(folder, name).read_text())


def everything() -> dict[str, Any]:
    """`pairs` by "client on broker"; `clients` and `brokers` as they were found; `machine`."""
    return {
        "pairs": {
            f"{client.name} on {broker.name}": _read(broker.name, client.name)
            for broker in BROKERS
            for client in CLIENTS
            if has(broker.name, client.name)
        },
        "clients": {client.name: _read("clients", client.name) for client in CLIENTS if has("clients", client.name)},
        "brokers": {broker.name: _read("brokers", broker.name) for broker in BROKERS if has("brokers", broker.name)},
        "machine": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}, Java {java()}",
    }


@cache
def java() -> str:
    """The version of the Java on the PATH."""
    output = subprocess.run(["java", "-version"], capture_output=True, text=True).stderr
    found = re.search(r'version "([^"]+)"', output)
    return found[1] if found else "?"
