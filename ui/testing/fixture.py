"""The fixture `barnabas`: a proxy for one test, injected faults, and assertions on the traffic."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ...decoder.filter import FilterError, compile
from ...decoder.filter.language.errors import nearest
from ...plugins.actions import ACTIONS
from ...plugins.rules.recipes import quoted
from ...plugins.rules.rules import InvalidInput, Rule
from ...proxy import Proxy, ProxyConfig
from ...proxy.control import Control, ControlConfig
from ...proxy.control.client import ControlError
from ...proxy.events import Address, show
from ...proxy.processes.fork_server import ForkServer
from ...proxy.replay.dialer import Dialer, TargetFailed
from ...proxy.replay.target import TargetCluster

if TYPE_CHECKING:
    from ...proxy.serve import Served
    from .cassette import Cassette

Json = dict[str, Any]

_CONDITIONS = {
    "api": "api", "version": "ver", "topic": "topic", "partition": "partition", "group": "group", "member": "member",
    "txn": "txn", "client": "client", "software": "software",
}  # fmt: skip
"""Arguments of `inject`, and the fields of the filter language that they are."""
_WHEN = ("after", "times", "every", "probability", "seed", "from", "until")
_ACTION = tuple(dict.fromkeys(key for action in ACTIONS.values() for key in action.KEYS))
SEVERITIES = ("high", "medium", "low", "info")
_UNREACHABLE = ("connection-refused", "unreachable-advertised-address")
"""Findings that say that a broker cannot be reached."""
SETTLE_SECONDS = 0.05
LAST_EXCHANGES_SECONDS = 1.0
HITS = 1000
PAGE = 500


def _check(filter: str) -> None:
    __tracebackhide__ = True
    try:
        compile(filter)
    except FilterError as error:
        raise error.with_traceback(None) from None


def _exchanges(count: int) -> str:
    return f"{count} exchange{' matches' if count == 1 else 's match'}"


class Injected:
    """An active fault. `required`: the test fails if it never fires."""

    def __init__(self, barnabas: Barnabas, rule: Rule, required: bool) -> None:
        self.rule, self.required = rule, required
        self._barnabas = barnabas
        self._last = 0
        self._touched: list[Json] = []
        self._removed = False

    @property
    def name(self) -> str:
        return self.rule.name

    @property
    def hits(self) -> int:
        """How often it has fired."""
        if not self._removed:
            self._last = next(each["hits"] for each in self._barnabas.control.rules() if each["name"] == self.name)
        return self._last

    @property
    def exchanges(self) -> list[Json]:
        """The exchanges that it affected, in order, as `Barnabas.exchanges` returns them. Waits for exchanges that have
        just ended; those that have not ended (a response never came) are omitted."""
        if self._removed:
            return self._touched
        deadline = time.monotonic() + LAST_EXCHANGES_SECONDS
        while True:
            hits = self._barnabas.control.hits(self.name, limit=HITS)
            numbers = [hit["exchange"] for hit in hits if hit["exchange"] is not None]
            if len(numbers) == len(hits) or time.monotonic() > deadline:
                return [self._barnabas.control.exchange(number) for number in numbers]
            time.sleep(SETTLE_SECONDS)

    def wait(self, hits: int = 1, timeout: float = 10.0) -> int:
        """Wait until it has fired this many times; returns how often it has fired. AssertionError when the time is up, or
        if it was removed first."""
        __tracebackhide__ = True
        if not self._removed:
            try:
                return self._barnabas.control.wait_for_hits(self.name, hits, timeout)
            except TimeoutError:
                pass
        found = self.hits
        if found < hits:
            when = "before it was removed" if self._removed else f"in {timeout:g} s"
            raise AssertionError(f"{self} has fired {found} time{'s' * (found != 1)} {when}, not {hits}")
        return found

    def remove(self) -> None:
        """Let exchanges pass again; its hits are kept."""
        if not self._removed:
            self._last, self._touched = self.hits, self.exchanges
            self._removed = True
            self._barnabas.control.remove_rule(self.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def __str__(self) -> str:
        return f"fault {self.name!r} ({self.rule.match})"


class BrokerDown:
    """A broker that cannot be reached through the proxy until `up` or the end of a `with` block."""

    def __init__(self, barnabas: Barnabas, node: int, address: Address) -> None:
        self.node, self.address = node, address
        self._barnabas = barnabas

    def up(self) -> None:
        """Let clients reach it again. May be called more than once."""
        if self in self._barnabas.down:
            self._barnabas.down.remove(self)
            self._barnabas.keep_down()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.up()


class Barnabas:
    """The fixture. `bootstrap`: the address for clients; `proxy` and `control`: everything else."""

    def __init__(
        self,
        upstream: Address,
        directory: Path,
        record: Path | None = None,
        fork_server: ForkServer | None = None,
        known: Mapping[str, str] | None = None,
        more_upstreams: Sequence[Address] = (),
        cassette: Cassette | None = None,
    ) -> None:
        """`known`: findings about the cluster itself, as `cluster.OWN_FINDINGS`, which tests do not get. `more_upstreams`: further
        brokers of the same cluster, so that clients find it while the first one is down. `cassette`: a recording instead of
        the cluster, which ends with the proxy."""
        self._known = known or {}
        self._cassette = cassette
        control = ControlConfig(path=directory / "control.sock", directory=directory)
        config = ProxyConfig(
            upstream=upstream, more_upstreams=tuple(more_upstreams), control=control, findings=True, record=record
        )
        self._upstreams = [upstream, *more_upstreams]
        self.proxy = Proxy(config, fork_server=fork_server)
        self.injected: list[Injected] = []
        self.down: list[BrokerDown] = []
        self._were_down: set[str] = set()
        self._down_nodes: set[int] = set()
        self._since = 0

    def start(self) -> Self:
        self.proxy.start()
        started = self.proxy.control
        assert started is not None
        access = started.access
        self.control = Control(access.url, access.token)
        return self

    def stop(self) -> None:
        """End the proxy, and the cassette behind it."""
        self.proxy.stop()
        if self._cassette is not None:
            self._cassette.served.stop()

    @property
    def cassette(self) -> Served | None:
        """The recording that replaces the cluster: `misses`, `unused()`, `differences`. None without one."""
        return None if self._cassette is None else self._cassette.served

    @property
    def bootstrap(self) -> str:
        host, port = self.proxy.address
        return f"{host}:{port}"

    # -- faults ------------------------------------------------------------------------------------------------

    def inject(
        self, match: str = "", *, do: Any = None, name: str = "", required: bool = True, **given: Any
    ) -> Injected:
        """A fault: ``inject(api="Produce", topic="orders", error="NOT_LEADER_OR_FOLLOWER", times=2)``.

        `match`: a filter for conditions that the arguments api, version, topic, partition, group, member, txn, client and
        software do not cover. after, times, every, probability, seed, from_, until: when it fires. Everything else is the
        action, as in a rules file; use `do` for several. Raises ValueError with what is wrong. See docs/rules.md.
        """
        __tracebackhide__ = True  # what is wrong is the line of the test
        terms = [f"({match})"] if match else []
        when: dict[str, Any] = {}
        action: dict[str, Any] = {}
        for word, value in given.items():
            key = word.rstrip("_")
            if key in _CONDITIONS and not (key == "group" and isinstance(value, Mapping)):
                terms.append(f"{_CONDITIONS[key]} == {value if isinstance(value, int) else quoted(str(value))}")
            elif key in _WHEN:
                when[key] = value
            elif key in _ACTION:
                action[key] = value
            else:
                words = (*_CONDITIONS, *_WHEN, *_ACTION)
                raise ValueError(f"inject: there is no {word!r}{nearest(key, words)} (possible: {', '.join(words)})")
        if do is not None and action:
            raise ValueError(f"inject: the action is given twice, by do and by {', '.join(action)}: put everything into do")
        if not terms:
            raise ValueError('a fault needs a target: api="Produce", or a filter as the first argument')
        name = name or f"fault {len(self.injected) + 1}"
        try:
            rule = Rule.of(" and ".join(terms), do if do is not None else action, name=name, when=when)
        except InvalidInput as error:
            raise error.with_traceback(None) from None
        self.control.add_rule(rule.to_dict())
        found = Injected(self, rule, required)
        self.injected.append(found)
        return found

    def cassette_faults(self, ended: bool = True) -> list[str]:
        """What the test did that its cassette does not allow and that was not reported before; see `Cassette.faults`."""
        return [] if self._cassette is None else self._cassette.faults(ended)

    def broker_down(self, node: int) -> BrokerDown:
        """Make the broker with this id unreachable: its connections are closed and new ones end at once, as if it were not
        running. It ends with `up()`, the `with` block, or `reset()`. Raises ValueError for an unknown id.

        The other brokers do not notice: it still leads its partitions, so clients wait for it.
        """
        __tracebackhide__ = True
        found = {each["node"]: (each["broker"][0], each["broker"][1]) for each in self.control.brokers()}
        if node not in found and self._cassette is None:
            found |= self._nodes()
        if node not in found or node < 0:
            there = ", ".join(map(str, sorted(each for each in found if each >= 0))) or "none"
            raise ValueError(f"broker_down: no broker has the id {node}; there are: {there}")
        down = BrokerDown(self, node, found[node])
        self.down.append(down)
        self._were_down.add(show(down.address))
        self._down_nodes.add(node)
        self.keep_down()
        return down

    def keep_down(self) -> None:
        """Make the proxy keep the brokers in `down` unreachable."""
        self.control.keep_down([each.address for each in self.down])

    def _nodes(self) -> dict[int, Address]:
        """The cluster's brokers by their ids, asked past the proxy: no exchange of the test."""
        wrong: Exception | None = None
        for upstream in self._upstreams:
            try:
                target = TargetCluster(upstream, Dialer())
            except TargetFailed as error:
                wrong = error
                continue
            target.close()
            return target.brokers
        raise ValueError(f"broker_down: the cluster does not list its brokers: {wrong}")

    def never_hit(self) -> list[Injected]:
        """The faults that should have fired but did not."""
        return [each for each in self.injected if each.required and not each.hits]

    def reset(self) -> None:
        """Start over within a test: remove the faults, bring brokers back up, and count exchanges from now on. Findings
        still cover the whole test."""
        for each in self.injected:
            each.remove()
        self.injected.clear()
        if self.down:
            self.down.clear()
            self.keep_down()
        since = self._since
        while (page := self.control.exchange_page("", since=since, limit=PAGE, bodies=False)).get("more"):
            since = page["next"]
        self._since = page["next"]

    # -- what went over the wire -------------------------------------------------------------------------------

    def exchanges(self, filter: str = "", *, bodies: bool = True) -> list[Json]:
        """Every exchange of this test so far that the filter selects, as ``barnabas decode --json`` shows them."""
        __tracebackhide__ = True
        if filter:
            _check(filter)
        found: list[Json] = []
        since = self._since
        while True:
            page = self.control.exchange_page(filter, since=since, limit=PAGE, bodies=bodies)
            found += page["exchanges"]
            since = page["next"]
            if not page.get("more"):
                return found

    def expect(
        self,
        filter: str,
        *,
        exactly: int | None = None,
        at_least: int | None = None,
        at_most: int | None = None,
        within: float | None = None,
        timeout: float = 10.0,
    ) -> list[Json]:
        """Assert how many exchanges a filter selects: ``expect("api == Metadata", at_most=3, within=1.0)``.

        `within`: `at_most` applies to any span of this many seconds. Without a number, at least one exchange is
        required. Missing exchanges are waited for, up to `timeout` seconds. AssertionError shows the exchanges.
        """
        __tracebackhide__ = True
        _check(filter)
        least = exactly if exactly is not None else at_least
        if least is None and at_most is None:
            least = 1
        most = exactly if exactly is not None else at_most
        deadline = time.monotonic() + timeout
        found = self.exchanges(filter, bodies=False)
        while least is not None and len(found) < least and time.monotonic() < deadline:
            time.sleep(SETTLE_SECONDS)
            found = self.exchanges(filter, bodies=False)
        if least is not None and len(found) < least:
            raise AssertionError(
                f"{_exchanges(len(found))} {filter}, not {least}{' or more' if exactly is None else ''}; there are:\n"
                + self.report()
            )
        if most is not None:
            shown = found if within is None else _densest(found, within)
            if len(shown) > most:
                span = f" within {within:g} s" if within is not None else ""
                raise AssertionError(f"{_exchanges(len(shown))} {filter}{span}, not at most {most}:\n{table(shown)}")
        return found

    def findings(self, at_least: str = "low", *, injected: bool = False) -> list[Json]:
        """Problems in the traffic so far, of this severity or worse, worst first. Faults of the mock brokers are
        omitted, and so are the effects of the test's own faults unless `injected`."""
        __tracebackhide__ = True
        if at_least not in SEVERITIES:
            raise ValueError(f"a severity is one of {', '.join(SEVERITIES)}, not {at_least!r}{nearest(at_least, SEVERITIES)}")
        wanted = SEVERITIES[: SEVERITIES.index(at_least) + 1]
        return [
            each
            for each in self.control.findings()
            if each["severity"] in wanted
            and not self._is_known(each)
            and (injected or not (each["injected"] or self._comes_of_down(each)))
        ]

    def _comes_of_down(self, finding: Json) -> bool:
        """Whether it is that a broker cannot be reached which the test keeps down, or kept."""
        about = finding["about"]
        down = about.get("broker") in self._were_down or about.get("node") in self._down_nodes
        return finding["id"] in _UNREACHABLE and down

    def _is_known(self, finding: Json) -> bool:
        words = self._known.get(finding["id"])
        return words is not None and words in finding["seen"]

    def report(self, most: int = 200) -> str:
        """The exchanges of this test, the requests that wait for a response, and the faults, for people."""
        try:
            found = self.exchanges(bodies=False) + self.control.pending()
        except (OSError, ControlError) as error:
            return f"not known: {error}"
        lines = [table(found[-most:], self._faults_by_exchange())]
        if len(found) > most:
            lines.insert(0, f"({len(found) - most} exchanges before these)")
        lines += [f"{each}: {each.hits} hit{'s' * (each.hits != 1)}" for each in self.injected]
        if self._cassette is not None:
            lines += self._cassette.report()
        return "\n".join(lines)

    def _faults_by_exchange(self) -> dict[int, list[str]]:
        """By the exchanges' numbers, the names of the faults that have touched them."""
        found: dict[int, list[str]] = {}
        for each in self.injected:
            for exchange in each.exchanges:
                found.setdefault(exchange["id"], []).append(each.name)
        return found


def _densest(found: list[Json], seconds: float) -> list[Json]:
    """Those within the span of time that holds the most."""
    found = sorted(found, key=lambda each: each["time_ns"] or 0)
    best: list[Json] = []
    begin = 0
    for end, each in enumerate(found):
        while (each["time_ns"] or 0) - (found[begin]["time_ns"] or 0) > seconds * 1e9:
            begin += 1
        if end + 1 - begin > len(best):
            best = found[begin : end + 1]
    return best


def table(found: list[Json], faults: Mapping[int, list[str]] | None = None) -> str:
    """A line per exchange; `faults`: the names of those that have touched it, by its number."""
    from ..safe import visible

    if not found:
        return "no exchange"
    first = found[0]["time_ns"] or 0
    lines = []
    for each in found:
        at = ((each["time_ns"] or first) - first) / 1e9
        latency = (
            f"{each['latency_ns'] / 1e6:8.2f} ms" if each.get("latency_ns") is not None else f"{each['state']:>11}"
        )
        if "pending_ns" in each:
            latency = f"waiting for {each['pending_ns'] / 1e9:.1f} s"
        error = f"  {each['error']}" if each.get("error") else ""
        touched = "".join(f"  [{visible(name)}]" for name in (faults or {}).get(each.get("id", -1), ()))
        who = visible(str(each["client_id"] or ""))
        lines.append(
            f"{at:8.3f} s  conn {each['connection']:<3} {who:<20.20} {each['api']} v{each['api_version']} {latency}{error}{touched}"
        )
    return "\n".join(lines)
