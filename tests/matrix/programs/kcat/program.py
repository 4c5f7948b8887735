"""kcat: librdkafka at the command line. It makes and deletes no topics, but can ask for their ends. See matrix.stages."""

from __future__ import annotations

import subprocess
from typing import Any

from harness.waiting import PATIENCE, PATIENCE_MS
from matrix.stages import BOOKED, GZIP, PLAIN, main

KCAT = "kcat"


class KcatFailed(Exception):
    """It ended with an error."""


def kcat(*arguments: str, lines: list[str] | None = None) -> list[str]:
    """What it prints; the first error when it fails."""
    given = None if lines is None else "".join(f"{line}\n" for line in lines)
    done = subprocess.run([KCAT, "-q", *arguments], input=given, capture_output=True, text=True, timeout=2 * PATIENCE)
    if done.returncode:
        raise KcatFailed((done.stderr or done.stdout).strip()[-300:])
    return done.stdout.splitlines()


def group(bootstrap: str, run: str) -> dict[str, Any]:
    seen = []
    for values, codec in ((PLAIN, "none"), (GZIP, "gzip")):
        for partition in (0, 1):
            to = ("-b", bootstrap, "-P", "-t", f"{run}-orders", "-p", str(partition), "-z", codec)
            kcat(*to, "-X", f"message.timeout.ms={PATIENCE_MS}", lines=values[partition::2])
        member = ("-b", bootstrap, "-G", f"{run}-group", "-c", str(len(values)), "-X", "auto.offset.reset=earliest")
        seen.append(sorted(kcat(*member, f"{run}-orders")))
    ends = [kcat("-b", bootstrap, "-Q", "-t", f"{run}-orders:{partition}:-1") for partition in (0, 1)]
    return {"first": seen[0], "second": seen[1], "ends": [int(line.rpartition(" ")[2]) for (line,) in ends]}


def transactions(bootstrap: str, run: str) -> dict[str, Any]:
    """One that is committed: it cannot abort."""
    to = ("-b", bootstrap, "-P", "-t", f"{run}-booked", "-p", "0", "-X", f"transactional.id={run}-tx")
    kcat(*to, lines=BOOKED)
    back = ("-b", bootstrap, "-C", "-t", f"{run}-booked", "-p", "0", "-c", str(len(BOOKED)))
    return {"committed": kcat(*back, "-X", "isolation.level=read_committed")}


if __name__ == "__main__":
    output = subprocess.run([KCAT, "-V"], capture_output=True, text=True).stdout
    library = output.rpartition("librdkafka ")[2].split()[0]
    version = output.partition("Version ")[2].split()[0]
    main(f"kcat {version} (librdkafka {library})", group=group, transactions=transactions)
