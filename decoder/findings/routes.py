"""Who hears of what goes well, connection by connection: most detectors follow none of it."""

from __future__ import annotations

from collections import Counter

from ..exchange import State
from .detector import Detector
from .foreseen import LOOKUPS, UNREAD, Foreseen
from .groups import Groups
from .latency import HeadOfLine, SlowAnswers
from .scene import Link, Scene
from .waits import Waits, throttle_ms

ASK_AGAIN = frozenset((8, 64, 512))
"""After so many exchanges all are asked again: some follow a connection only until it has done enough."""


class Route:
    """Of one API, version and client id on a connection: who follows plain exchanges, and those that say the same again.
    `change`: what `Routes` had counted of its API when this was made; `count`: exchanges that took it; `throttled`: the answer
    named a throttle time."""

    __slots__ = ("change", "count", "plain_done", "plain_request", "same_done", "same_request", "throttled")

    def __init__(self, change: int, count: int, throttled: bool) -> None:
        self.change, self.count, self.throttled = change, count, throttled
        self.plain_request: list[Detector] = []
        self.plain_done: list[Detector] = []
        self.same_request: list[Detector] = []
        self.same_done: list[Detector] = []


class Routes:
    """Asked by the `Inspector` about exchanges of recordings (`foreseen.Foreseen`), which it may then not tell to everybody.

    What several connections are told alike (where brokers are) is only the same again as long as no other connection is told
    anything new: then it is told in full once more.
    """

    def __init__(self, scene: Scene) -> None:
        self._groups, self._waits = Groups.of(scene), Waits.of(scene)
        self._changes: Counter[int] = Counter()

    def requests(self, link: Link, exchange: Foreseen) -> list[Detector] | None:
        """Who has to be told of a plain request; None for everybody. It may turn out not to be the same again."""
        key = exchange.api_key
        at = key, exchange.api_version, exchange.client_id
        route: Route | None = link.routes.get(at)
        if route is not None:
            route.count += 1
            if route.count in ASK_AGAIN:
                exchange.same, route = False, None
        if exchange.same:
            if route is not None and not route.throttled and self._nothing_new(link, exchange, route):
                return route.same_request
            exchange.same = False
        return None if route is None else route.plain_request

    def _nothing_new(self, link: Link, exchange: Foreseen, route: Route) -> bool:
        key = exchange.api_key
        return route.change == self._changes[key] if key in LOOKUPS else self._groups.sign(link, exchange)

    def answers(self, link: Link, exchange: Foreseen) -> list[Detector] | None:
        """Who has to be told that a plain exchange is done; None for everybody."""
        taken = self._waits.read(link, exchange, exchange.same)
        route: Route | None = link.routes.get((exchange.api_key, exchange.api_version, exchange.client_id))
        if route is None or route.count in ASK_AGAIN or taken is None or taken.throttled:
            return None
        if taken.behind >= HeadOfLine.WAITED_NS or taken.held >= SlowAnswers.FLOOR_NS:
            return None
        return route.same_done if exchange.same else route.plain_done

    def told(self, link: Link, exchange: Foreseen, hearing: tuple[list[Detector], list[Detector]]) -> None:
        """Everybody was told that an exchange is done: ask who follows the next ones."""
        key = exchange.api_key
        if key in LOOKUPS and not exchange.repeated:
            self._changes[key] += 1
        if exchange.state is not State.PAIRED or key in UNREAD:
            link.routes.clear()
        if not exchange.plain:
            return
        at = key, exchange.api_version, exchange.client_id
        before: Route | None = link.routes.get(at)
        route = link.routes[at] = Route(
            self._changes[key], before.count + 1 if before is not None else 1, throttle_ms(exchange) > 0
        )
        for detectors, plain, same in zip(
            hearing, (route.plain_request, route.plain_done), (route.same_request, route.same_done), strict=True
        ):
            plain += [d for d in detectors if _follows(d, link, exchange, False)]
            same += [d for d in plain if _follows(d, link, exchange, True)]


def _follows(detector: Detector, link: Link, exchange: Foreseen, same: bool) -> bool:
    try:
        return detector.follows(link, exchange, same)
    except Exception:  # a fault of ours: one that cannot say is told everything, and shows there what is wrong with it
        return True
