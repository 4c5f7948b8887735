"""``python -m matrix``: every client in front of every broker; docs/compatibility.md is made of what was seen.

A pair that was seen before is not tried again (its result is in .cache/matrix/results); ``--again`` tries it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from matrix import faults, page, results
from matrix.brokers import BROKERS, Address, Broker
from matrix.building import CLIENTS, Client, Missing
from matrix.pair import run_pair
from real.brokers.broker import REPOSITORY, BrokerFailed

DOCUMENT = REPOSITORY / "docs" / "compatibility.md"


def main() -> int:
    """0, or 1 where a pair is not as it should be."""
    arguments = read_arguments()
    clients, brokers = chosen(arguments.only)
    commands = build(clients)
    untried: list[str] = []
    done, total, began = 0, len(brokers) * len(commands), time.monotonic()
    for broker in brokers:
        todo = [name for name in commands if arguments.again or not results.has(broker.name, name)]
        done += len(commands) - len(todo)
        if not todo:
            continue
        log(f"{broker.name}: starting Kafka {broker.release}")
        try:
            with broker.running() as address:
                results.keep("brokers", broker.name, {"java": results.java()})

                def one(name: str, broker: Broker = broker, address: Address = address) -> None:
                    try:
                        result = run_pair(commands[name], address, patience=arguments.patience)
                    except TimeoutError as reason:  # before it began: no result of the client
                        results.drop(broker.name, name)
                        untried.append(f"{name} on {broker.name}: not tried: {reason}")
                        log(untried[-1])
                        return
                    results.keep(broker.name, name, result)
                    lines = [f"[{time.monotonic() - began:.0f} s] {name} on {broker.name}: {page.cell(result)}"]
                    log("\n    ".join([*lines, *faults.of(result)]))

                with ThreadPoolExecutor(arguments.pairs) as together:
                    list(together.map(one, todo))
                done += len(todo)
                log(f"{done} of {total} pairs")
        except BrokerFailed as reason:
            done += len(todo)
            log(f"{broker.name}: does not start: {reason}")
            results.keep("brokers", broker.name, {"failed": str(reason), "java": results.java()})
    seen = results.everything()
    if arguments.json:
        print(json.dumps(seen, indent=1))
    if not arguments.only or arguments.write:
        DOCUMENT.write_text(page.document(seen))
        log(f"wrote {DOCUMENT.relative_to(REPOSITORY)}")
    wrong = [f"{pair}: {line}" for pair, result in seen["pairs"].items() for line in faults.of(result)]
    for line in wrong + untried:
        log(line)
    log(f"{len(seen['pairs'])} pairs, {len(wrong)} faults")
    if untried:
        log(f"{len(untried)} not tried: the same command without --again tries those that have no result yet")
    return 1 if wrong or untried else 0


def build(clients: list[Client]) -> dict[str, list[str]]:
    """The commands of those that can be had here."""
    commands = {}
    for client in clients:
        log(f"{client.name}: building")
        try:
            commands[client.name] = client.build()
            results.keep("clients", client.name, {})
        except (Missing, OSError, subprocess.TimeoutExpired) as reason:
            log(f"{client.name}: left out: {reason}")
            results.keep("clients", client.name, {"missing": str(reason)})
    return commands


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="matrix", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", default="", metavar="NAME,...", help="these clients and brokers only")
    parser.add_argument("--again", action="store_true", help="also what was tried before")
    parser.add_argument("--pairs", type=int, default=1, metavar="N", help="so many clients at a time")
    parser.add_argument(
        "--patience", type=float, default=12, metavar="SECONDS",
        help="how long a client's stage may wait for something (12); more where the machine is busy:\nwhat never works takes as long",
    )  # fmt: skip
    parser.add_argument("--write", action="store_true", help="write the document in spite of --only")
    parser.add_argument("--json", action="store_true", help="print every result as JSON")
    return parser.parse_args()


def chosen(only: str) -> tuple[list[Client], list[Broker]]:
    """What these words name (a broker, or the beginning of clients); all of a kind where they name none of it."""
    words = [word for word in only.split(",") if word]
    brokers = [broker for broker in BROKERS if broker.name in words]
    clients = [client for client in CLIENTS if any(client.name.startswith(word) for word in words)]
    for word in words:
        if not any(b.name == word for b in brokers) and not any(c.name.startswith(word) for c in clients):
            names = ", ".join([c.name for c in CLIENTS] + [b.name for b in BROKERS])
            sys.exit(f"--only {word}: no client or broker of that name; there are {names}")
    return clients or CLIENTS, brokers or BROKERS


def log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
