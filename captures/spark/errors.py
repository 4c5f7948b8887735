"""The reason of a Spark failure in one line."""

from __future__ import annotations

import re
from pathlib import Path

_LOG_TAIL = 1 << 16
_FAULT = re.compile(r"^(?:\[[A-Z_.]+\] )?(?:[\w.]+\.)?(\w*(?:Error|Exception|NotACapture)): (.+)$")


def reason(error: BaseException, log: Path | None = None) -> str:
    """The most specific line of a Spark failure: the last exception of the innermost traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if log is not None and type(error).__name__ == "PySparkRuntimeError":
        lines += _log_lines(log)
    for line in reversed(lines):
        if "UnsupportedClassVersionError" in line:
            return "Java is too old, Spark needs 17 or newer: apt install openjdk-17-jre-headless (Debian)"
        if match := _FAULT.match(line):
            return match[2]
    return lines[0] if lines else type(error).__name__


def _log_lines(log: Path) -> list[str]:
    try:
        data = log.read_bytes()[-_LOG_TAIL:]
    except OSError:
        return []
    return [line.strip() for line in data.decode("utf-8", "replace").splitlines() if line.strip()]
