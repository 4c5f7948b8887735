"""What was seen, as docs/compatibility.md."""

from __future__ import annotations

import re
import textwrap
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from barnabas.decoder.reference import releases
from barnabas.decoder.schema import facts
from matrix import faults
from matrix.brokers import BROKERS, Broker
from matrix.building import CLIENTS
from matrix.pair import differences, succeeded
from matrix.recording import OF_VERSION_0
from matrix.stages import EXPECTED

Result = dict[str, Any]
LETTERS = {stage: stage[0].upper() for stage in EXPECTED}
NOTHING = "–"
TAKES = {"group": ["JoinGroup"], "defaults": ["Produce"], "transactions": ["InitProducerId"], "admin": ["CreateTopics", "DescribeConfigs"]}
"""APIs that a stage cannot do without."""

HEAD = f"""# Compatibility

Real clients on real brokers, directly and through the proxy. `make matrix` (`tests/matrix`) generates this page: each pair runs the same small
program both ways, and the recording is then decoded. `make matrix ARGS="--only kafkajs,2.8 --again"` runs some pairs; `ARGS=--json` prints all with
their versions.

- **{LETTERS["group"]}** (group): produces plain and gzip records, consumes in a group; the next member resumes after the committed offsets
- **{LETTERS["defaults"]}** (defaults): produces with the client's own settings, where those are others than above (idempotence)
- **{LETTERS["transactions"]}** (transactions): produces in transactions, aborts one, consumes with read_committed; commits group offsets if the client can
- **{LETTERS["admin"]}** (admin): creates a topic with a setting, describes it, and deletes it

Letters mean correct results directly; after an arrow, with `--translate` ([translation](translation.md)), if that
achieves more. A dash means that nothing worked, an empty cell that the pair was not tested. kcat creates no topics;
kafka-go has no transactional producer, and Java before 0.11 has neither transactions nor an admin client. kafka-python
before 3 is tried in groups and as an admin client only. Translation cannot add what a broker lacks: groups before 0.9
(0.8.2 has no JoinGroup), topic creation by request before 0.10.1, topic settings and transactions before 0.11."""

ON_TODAYS_JAVA = """ZooKeeper runs with `zookeeper.jmx.log4j.disable=true` (log4j's successor lacks a class that it loads) and `zookeeper.4lw.commands.whitelist=ruok`
(needed since 3.5). Kafka up to 0.10.2 needs the jar of `javax.xml.bind`, which Java 11 removed. Kafka 2.2 and 2.3 do not start on Java 14 or newer:
their ZooKeeper 3.4.14 fails with `Unable to canonicalize address BROKER/<unresolved> because it's not resolvable`."""


def document(everything: dict[str, Any]) -> str:
    """The page as Markdown."""
    pairs: dict[str, Result] = everything["pairs"]
    shown = [broker for broker in BROKERS if broker.name in everything["brokers"]]
    header = " | ".join(broker.name for broker in shown)
    lines = [HEAD, "", f"| client | {header} |", "|---" * (len(shown) + 1) + "|"]
    missing = []
    for client in CLIENTS:
        found = [pairs.get(f"{client.name} on {broker.name}") for broker in shown]
        names = [result["client"] for result in found if result and result["client"]]
        if names:
            lines.append(f"| {names[0]} | " + " | ".join(cell(result) if result else "" for result in found) + " |")
        else:
            missing.append(f"{client.name} ({everything['clients'].get(client.name, {}).get('missing', 'not tried')})")
    lines += ["", totals(list(pairs.values())), ""]
    if missing:
        lines += [f"Left out here: {'; '.join(missing)}.", ""]
    javas = ", ".join(sorted({known["java"] for known in everything["brokers"].values() if "failed" not in known}))
    lines += ["## Brokers", "", f"On Java {javas}:", "", *(f"- {start(broker, everything['brokers'])}" for broker in BROKERS), "", ON_TODAYS_JAVA, ""]
    lines += ["## Versions", "", "API versions of the requests, on all brokers, without translation.", ""]
    for client in CLIENTS:
        if versions := united(pairs, client.name):
            seen = sorted(versions.items(), key=lambda each: facts.api_key(each[0]) or 0)
            lines.append(f"- **{client.name}**: " + "; ".join(f"{api} {ranges(of)}" for api, of in seen))
    needed = "; ".join(f"{stage} needs {' and '.join(apis)}" for stage, apis in TAKES.items())
    translated = {pair: possible(pair, found["translated"]["said"]) for pair, found in pairs.items() if found["translated"]}
    lines += ["", "## What does not work", "", "The clients' own errors, when connected directly to the broker.", ""]
    lines += [*failures({pair: result["direct"] for pair, result in pairs.items()}), ""]
    lines += [f"Failures with translation, although the broker has the APIs that each step needs: {needed}.", ""]
    lines += [*failures(translated), ""]
    lines += ["## Findings", "", "The findings above severity `info` that `barnabas findings` reports on these recordings.", ""]
    lines += findings(pairs.values())
    return "\n".join(lines).rstrip() + "\n"


def letters(outcomes: Result) -> str:
    """The stages that gave what they must."""
    return "".join(LETTERS[stage] for stage, good in succeeded(outcomes).items() if good) or NOTHING


def cell(result: Result) -> str:
    """Directly, and where translation gives more, that behind an arrow."""
    direct = letters(result["direct"])
    more = letters(result["translated"]["said"]) if result["translated"] else NOTHING
    return direct if set(more) <= {*direct, NOTHING} else f"{direct} → {more}"


def totals(results: list[Result]) -> str:
    """One sentence that sums up."""
    sides = [side for result in results for side in (result["proxied"], result["translated"]) if side]
    exchanges, undecoded = sum(side["exchanges"] for side in sides), sum(len(side["undecoded"]) for side in sides)
    foreign = sum(each.endswith(OF_VERSION_0) for side in sides for each in side["undecoded"])
    other = sum(bool(differences(result["direct"], result["proxied"]["said"])) for result in results)
    versions = {(api, version) for side in sides for api, seen in side["versions"].items() for version in seen}
    answers = f" (except {foreign} responses in another version than the request: see the findings)" if foreign else ""
    return (
        f"{len(results)} pairs, {other} of them with a different outcome through the proxy; {exchanges:,} "
        f"exchanges recorded, {undecoded - foreign} of them not decoded{answers}; {len({api for api, _ in versions})} APIs in "
        f"{len(versions)} versions."
    )


def start(broker: Broker, brokers: dict[str, Any]) -> str:
    """How a broker is run, or why not."""
    how = f"**{broker.name}**: Kafka {broker.release} with {'ZooKeeper' if broker.keeper else 'KRaft'}"
    if broker.name not in brokers:
        return f"{how}; not tried"
    known = brokers[broker.name]
    if "failed" not in known:
        return how
    log = "\n  ".join(anonymous(line)[:150] for line in known["failed"].splitlines()[:5])
    return f"{how} does not start on Java {known['java']}:\n\n  ```\n  {log}\n  ```\n"


def united(pairs: dict[str, Result], client: str) -> dict[str, set[int]]:
    """Versions by API over all brokers."""
    found: dict[str, set[int]] = defaultdict(set)
    for pair, result in pairs.items():
        if pair.startswith(f"{client} on "):
            for api, seen in result["proxied"]["versions"].items():
                found[api].update(seen)
    return found


def ranges(versions: Iterable[int]) -> str:
    """1, 2, 3, 7 as 1–3, 7."""
    runs: list[list[int]] = []
    for version in sorted(versions):
        if runs and runs[-1][1] == version - 1:
            runs[-1][1] = version
        else:
            runs.append([version, version])
    return ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in runs)


def possible(pair: str, outcomes: Result) -> Result:
    """The outcomes of stages whose APIs the broker has."""
    (broker,) = (broker for broker in BROKERS if pair.endswith(f" on {broker.name}"))
    release = releases.release(broker.release.rpartition(".")[0])
    lacking = {stage for stage, apis in TAKES.items() if any(release.range(facts.api_key(api)) is None for api in apis)}
    return {stage: outcome for stage, outcome in outcomes.items() if stage not in lacking}


def failures(outcomes: dict[str, Result]) -> list[str]:
    """By the clients' words: which clients, on which brokers; from the outcomes of each pair."""
    where: dict[tuple[str, str], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for pair, stages in outcomes.items():
        client, _, broker = pair.partition(" on ")
        if "broken" in stages:
            where[anonymous(stages["broken"], 140), client][broker].append("all")
        for stage, good in succeeded(stages).items():
            if not good:
                words = ": ".join((stages[stage].get("error", "another result"), stages[stage].get("text", "")))
                where[anonymous(words, 140), client][broker].append(stage)
    clients: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for (words, client), places in where.items():
        brokers: dict[str, list[str]] = defaultdict(list)
        for broker, failed in places.items():
            brokers["all" if failed == list(LETTERS) else ", ".join(failed)].append(broker)
        clients[words][", ".join(f"{', '.join(names)} ({what})" for what, names in brokers.items())].append(client)
    return [
        f"- `{words}`: " + "; ".join(f"{', '.join(names)} on {on}" for on, names in of.items())
        for words, of in clients.items()
    ] or ["Nothing."]


def anonymous(text: str, width: int = 180) -> str:
    """Words without what differs from run to run, on one line, and no longer than needed."""
    text = re.sub(r"(127\.0\.0\.1|localhost)(:\d+|/\d+)", "BROKER", text).replace("127.0.0.1", "HOST")
    text = re.sub(r"\bm[0-9a-f]{10}\b", "RUN", text)
    text = re.sub(r"/tmp/[\w/.-]+", "FILE", text)
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ ", "", text).replace("`", "'")
    return textwrap.shorten(text, width, placeholder=" …")


def findings(results: Iterable[Result]) -> list[str]:
    """Every kind once: how often, an example, the reason."""
    seen: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for result in results:
        for found in result["proxied"]["findings"]:
            seen[found["id"]].append(found)
    lines = []
    for name, of in sorted(seen.items()):
        why = faults.reason(of[0]) or "Not explained."
        lines.append(f"- `{name}` ({len(of)}), such as: {anonymous(of[0]['seen'])}. {why}")
    return lines or ["None."]
