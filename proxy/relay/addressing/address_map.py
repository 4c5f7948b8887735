"""The address map: every broker that a response names to a client gets a listener of its own.

Ports: bootstrap port + 1, + 2 ... (the next free one) when the bootstrap port was chosen by the user, else any
free port. The bootstrap listener itself serves the broker whose address is the upstream address, also when the
broker spells its host differently. Ports that the proxy itself uses for other things (the control API) are passed
over, and a broker that claims to live there gets no listener. A broker that names a listener of the proxy as its address (it
advertises the proxy) keeps it.

Any response can name brokers. So there are at most `most` listeners, no more than half of the files that the relay may open, and
one whose broker no response has named for long and that carries no connection is closed (`expire`).

Several workers keep one map (`shared_state`): who meets a new broker opens its listener under the lock, hands the socket
to the others by way of the supervisor, and writes down the port. All record when brokers were named. The first to find that one
has expired removes it from the map under the lock, and each worker closes the listeners that the map does not have any more.
"""

from __future__ import annotations

import errno
import math
import os
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager

from ...events import Address, BrokerFound, BrokerGone, BrokerIsProxy, Event, ListenerFailed, PortPassedOver
from ...processes.worker_shared_state import LOCK_SECONDS, SharedState
from .destinations import ITSELF, Destinations
from .resolver import SocketAddress, literal

MOST_BROKERS = 1000
EXPIRY_SECONDS = 900.0
REFUSED_EVERY = 10.0
"""Least seconds between two events about brokers that get no listeners."""
TRIES = 64
"""Ports that are tried one after the other from the fixed start."""
_ALL_CLOSED = (None, "", 0, 0)
"""What begins a log of the workers that was rewritten: no listener is open but for those that follow."""


def listen(address: Address, before_bind: Callable[[socket.socket], None] | None = None) -> socket.socket:
    """A listening, non-blocking socket on `address` (port 0: any); OSError when it cannot be had."""
    host, port = address
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, where = found[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if before_bind is not None:
            before_bind(sock)
        sock.bind(where)
        sock.listen(1024)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock


def reason(error: OSError) -> str:
    """The system's words for an error, without numbers."""
    if error.errno == errno.EADDRINUSE:
        return "the port is in use"
    if isinstance(error, socket.gaierror):
        return "the host name is not known"
    return (os.strerror(error.errno) if error.errno else str(error)).lower()


class AddressMap:
    """(host, port) of a broker -> port of its listener.

    `same_host(a, b, port)`: whether two names are one machine; `opened(socket, broker)` takes a new listener.
    `reserved`: ports of this machine that the proxy uses for something else -> for what. `known(host, port)`: the addresses of
    a host, None if nobody has looked yet. `most`: listeners at one time. `expiry`: see `expire`; 0: never. `retain(standing)` closes
    all other listeners of brokers than those for (broker, port). `stands`: whether the bootstrap listener stands for the
    upstream broker, which has one of its own otherwise.
    """

    def __init__(
        self,
        bootstrap: Address,
        upstream: Address,
        *,
        fixed: bool,
        same_host: Callable[[str, str, int], bool],
        opened: Callable[[socket.socket, Address], None],
        emit: Callable[[Event], None],
        shared_state: SharedState | None = None,
        reserved: Mapping[int, str] | None = None,
        known: Callable[[str, int], list[SocketAddress] | None] = literal,
        destinations: Destinations | None = None,
        most: int = MOST_BROKERS,
        expiry: float = 0.0,
        retain: Callable[[Set[tuple[Address, int]]], None] = lambda standing: None,
        clock: Callable[[], float] = time.monotonic,
        stands: bool = True,
    ) -> None:
        self._host = bootstrap[0]
        self._ports: dict[Address, int] = {upstream: bootstrap[1]} if stands else {}
        self._next = bootstrap[1] + 1 if fixed else 0
        self._bootstrap = bootstrap
        self._upstream = upstream if stands else ("", 0)
        self._same_host = same_host
        self._opened = opened
        self._emit = emit
        self._shared_state = shared_state
        self._reserved = reserved or {}
        self._known = known
        self._destinations = destinations or Destinations()
        self._most = most
        self._expiry = expiry or math.inf
        self._retain = retain
        self._clock = clock
        self._named: memoryview[float] | defaultdict[int, float] = defaultdict(float) if shared_state is None else shared_state.named
        """Ports of listeners -> when a response named their brokers last, to whichever worker."""
        self._refused = 0
        self._refusal: tuple[Address, str] | None = None
        """Of the brokers that were refused since the last event: most of one response, and the first with the reason."""
        self._last_failed: ListenerFailed | None = None
        self._reported_refused = -REFUSED_EVERY
        self.found: list[BrokerFound] = []
        """Every broker with a listener of its own, whichever worker has found it."""

    def port_for(self, broker: Address, node: int) -> int | None:
        """The port that stands for a broker; None if it has to stay as it is."""
        own = self._ports.get(broker)
        if own is not None:
            if self._clock() - self._named[own] < self._expiry / 2:
                return self._shared_port(broker)
            with self._locked():  # another worker may be about to close it
                self.catch_up()
                own = self._shared_port(broker)
            if own is not None:
                return own
        host, port = broker
        if not host or not 0 < port < 65536:
            return None
        addresses = [address[0] for _, address in self._known(host, port) or ()]
        what = next(filter(None, (self._destinations.own(address, port) for address in addresses)), "")
        if what == ITSELF:
            self._ports[broker] = port
            self._emit(BrokerIsProxy(node, broker))
            return port
        if what:
            self._refuse(broker, f"this is the address of {what}")
            return None
        upstream_host, upstream_port = self._upstream
        if port == upstream_port and self._same_host(host, upstream_host, port):
            self._ports[broker] = self._bootstrap[1]
            return self._bootstrap[1]
        with self._locked() as shared:
            self.catch_up()
            if broker not in self._ports:
                reasons = [self._destinations.refusal(address, port) for address in addresses]
                if reasons and all(reasons):
                    self._refuse(broker, reasons[0])
                    return None
                if len(self.found) >= self._most:
                    self._refuse(broker, f"{len(self.found)} brokers have listeners, the maximum (--max-brokers, ulimit -n)")
                    return None
                self._add(broker, node, shared)
            return self._shared_port(broker)

    def _shared_port(self, broker: Address) -> int | None:
        """The port that stands for a broker, if there is one yet; a response names the broker now."""
        own = self._ports.get(broker)
        if own is not None:
            self._named[own] = self._clock()
        return own

    def _refuse(self, broker: Address, why: str) -> None:
        """A broker keeps its own address. Only the first is kept and reported: there may be any number."""
        self._refused += 1
        self._refusal = self._refusal or (broker, why)

    def report_refused(self) -> None:
        """One event for all that were refused since the last, but not too often, and only if it says something else."""
        now = self._clock()
        if self._refusal is not None and now - self._reported_refused >= REFUSED_EVERY:
            broker, why = self._refusal
            failed = ListenerFailed(broker, why, self._refused)
            if failed != self._last_failed:
                self._emit(failed)
            self._last_failed = failed
            self._refused, self._refusal, self._reported_refused = 0, None, now

    def unknown_names(self, brokers: Iterable[Address]) -> list[Address]:
        """Names that have to be looked up before it is known whose address a broker has: where its port is that of the
        upstream or one of the proxy's own."""
        upstream_host, upstream_port = self._upstream
        found: dict[Address, None] = {}
        for host, port in brokers:
            if not host or (host, port) in self._ports or (host, port) in found:
                continue
            if port == upstream_port or self._destinations.is_own_port(port):
                for name in (host, upstream_host) if port == upstream_port else (host,):
                    if name and self._known(name, port) is None:
                        found[name, port] = None
        return list(found)

    def expire(self, used: Collection[Address]) -> None:
        """Close the listeners of brokers that no response has named for `expiry` seconds. As long as one of the workers has a
        connection to a broker (`used`: this one has), the broker counts as named."""
        gone: list[BrokerGone] = []
        with self._locked(0.0) as shared:
            if not shared:
                return  # the next time
            self.catch_up()
            now = self._clock()
            for found in self.found:
                if found.broker in used:
                    self._named[found.address[1]] = now
            if self._shared_state is not None:
                now = self._shared_state.used_until(now)
            for found in self.found:
                since = now - self._named[found.address[1]]
                if since >= self._expiry:
                    self._drop({found.broker})
                    self._log(None, found.broker, found.address[1])
                    gone.append(BrokerGone(found.broker, found.address, since))
        self._retain({(each.broker, each.address[1]) for each in self.found})
        for event in gone:
            self._emit(event)

    @contextmanager
    def _locked(self, seconds: float = LOCK_SECONDS) -> Iterator[bool]:
        """Whether the map of all workers may be changed."""
        if self._shared_state is None:
            yield True
        else:
            with self._shared_state.locked(seconds) as shared:
                yield shared

    def _log(self, node: int | None, broker: Address, port: int) -> None:
        """Write down that the broker's listener was opened, or closed (node: None); all that are open if there is no room for that."""
        if self._shared_state is not None and not self._shared_state.append([node, *broker, port]):
            self._shared_state.rewrite([list(_ALL_CLOSED), *([each.node, *each.broker, each.address[1]] for each in self.found)])

    def _keep(self, found: BrokerFound) -> None:
        self._ports[found.broker] = found.address[1]
        self.found.append(found)

    def _drop(self, brokers: Set[Address]) -> None:
        for broker in brokers:
            del self._ports[broker]
        self.found = [each for each in self.found if each.broker not in brokers]

    def _add(self, broker: Address, node: int, shared: bool) -> None:
        """Open a listener. `shared`: the map of all workers may be changed."""
        try:
            listener = self._open(broker, shared)
        except OSError as error:
            self._refuse(broker, reason(error))
            return
        own: Address = listener.getsockname()[:2]
        found = BrokerFound(node, broker, own)
        self._named[own[1]] = self._clock()
        self._keep(found)
        self._opened(listener, broker)
        if shared:
            self._log(node, broker, own[1])  # behind the socket: what is written there can be connected to
        self._emit(found)

    def catch_up(self) -> None:
        """Take over what other workers have learned."""
        for node, host, port, own in self._shared_state.new_entries() if self._shared_state is not None else ():
            broker = host, port
            if (node, host, port, own) == _ALL_CLOSED:
                self._drop({each.broker for each in self.found})
            elif node is not None and broker not in self._ports:
                self._keep(BrokerFound(node, broker, (self._host, own)))
            elif node is None and self._ports.get(broker) == own:
                self._drop({broker})

    def reopen(self) -> None:
        """The only worker begins anew: its brokers get the ports that they had."""
        self.catch_up()
        for found in self.found:
            try:
                listener = listen(found.address)
            except OSError:  # somebody has taken it: the broker gets another one when it is named again
                self._drop({found.broker})
            else:
                self._opened(listener, found.broker)

    def stands_for(self, broker: Address, node: int, local_host: str) -> Address | None:
        """The address that a client is given for a broker, if it found the proxy as `local_host`."""
        counted = self._refused, self._refusal
        port = self.port_for(broker, node)
        self._refused, self._refusal = counted  # `open_in_order` has counted it
        return None if port is None else (local_host, port)

    def open_in_order(self, brokers: Iterable[tuple[int, Address]], moves: bool = False) -> None:
        """Give listeners to brokers that came in one response, by node id: ports do not depend on the order.
        moves: the response states where brokers are now (see `named`)."""
        before, self._refused = self._refused, 0
        for node, broker in sorted(brokers):
            self.port_for(broker, node)
        self._refused = max(before, self._refused)
        self.report_refused()

    def listed(self) -> None:
        """A response has listed all brokers of the cluster."""

    def _open(self, broker: Address, shared: bool) -> socket.socket:
        if not self._next:
            return listen((self._host, 0))
        for _ in range(TRIES):
            port = self._next_port(shared)
            if port > 65535:
                break
            why = self._reserved.get(port)
            if why is None:
                try:
                    return listen((self._host, port))
                except OSError as error:
                    if error.errno != errno.EADDRINUSE:
                        raise
            self._emit(PortPassedOver(broker, port, why or ""))
        raise OSError(errno.EADDRINUSE, "no free port")

    def _next_port(self, shared: bool) -> int:
        """The port to try now; the one behind it is next."""
        if shared and self._shared_state is not None:
            self._next = max(self._next, self._shared_state.next_port)
            self._shared_state.next_port = self._next + 1
        port, self._next = self._next, self._next + 1
        return port
