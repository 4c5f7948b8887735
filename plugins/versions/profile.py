"""The versions that clients are offered: those of a release, or the broker's own with some of them capped.

A profile never offers more than the broker serves; `shortfall` lists what of it the broker lacks.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from ...decoder.connection.hit_notes import OFFERED
from ...decoder.reference import releases
from ...decoder.reference.releases import Release, release_order, served_from
from ...decoder.schema import facts
from .dependencies import Consequence, consequences
from .features import Features, of_release

API_VERSIONS = facts.api_key("ApiVersions")
Range = tuple[int, int]
_CLOSED = (0, 9)
"""Up to here an unknown request ended the connection; 0.9 left it unanswered, and from 0.10 it ends it again."""
_OWN_RANGE = (2, 4)
"""From here a refused ApiVersions is answered with the range that is served (KIP-511); before with nothing."""


@dataclass(frozen=True, slots=True)
class Shortfall:
    """An API of the profile of which the broker serves none of the profile's versions. `served`: None if the broker lacks
    the API."""

    api_key: int
    promised: Range
    served: Range | None

    @property
    def text(self) -> str:
        low, high = self.promised
        serves = "the broker has none" if self.served is None else f"the broker serves {span(*self.served)}"
        return f"{facts.api_name(self.api_key)} {span(low, high)} ({serves})"


@dataclass(frozen=True, slots=True)
class Profile:
    """`release`: the emulated one, None for the broker's own. `caps`: highest version by api key."""

    release: Release | None = None
    caps: Mapping[int, int] = field(default_factory=dict)
    follows: Mapping[int, Consequence] = field(init=False, compare=False, repr=False)
    """What the caps take away from other APIs, because clients would fail with it."""
    highest: Mapping[int, int] = field(init=False, compare=False, repr=False)
    """The caps and what follows from them; -1: the API is not offered."""

    def __post_init__(self) -> None:
        release = self.release
        follows = {
            key: each
            for key, each in consequences(self.caps).items()
            if release is None or (release.served(key) or (0, -1))[1] > each.version
        }
        object.__setattr__(self, "follows", follows)
        object.__setattr__(self, "highest", {**self.caps, **{key: each.version for key, each in follows.items()}})

    @classmethod
    def of(cls, pretend: str = "", cap: Mapping[str, int] | None = None) -> Profile:
        """From a release's name, and API names with versions. Raises ValueError."""
        found = find(pretend) if pretend else None
        caps: dict[int, int] = {}
        for name, version in (cap or {}).items():
            key = api(name)
            known = facts.api(key).versions
            low, high = known.low or 0, known.high or 0
            if found is not None:
                kept = found.served(key)
                if kept is None:
                    raise ValueError(f"Kafka {found.name} has no {facts.api_name(key)}: leave its cap out")
                low, high = kept
            of = f"Kafka {found.name} serves {facts.api_name(key)}" if found else f"{facts.api_name(key)} has versions"
            if version < low:
                raise ValueError(f"a cap of {version} leaves no version of {facts.api_name(key)}: {of} {span(low, high)}")
            if version > high:
                raise ValueError(f"a cap of {version} removes nothing: {of} {span(low, high)}")
            if key in caps:
                raise ValueError(f"{facts.api_name(key)} is capped twice")
            caps[key] = version
        return cls(found, caps)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Profile:
        """What `to_dict` gives."""
        return cls.of(str(fields.get("pretend") or ""), fields.get("cap") or {})

    def to_dict(self) -> dict[str, Any]:
        """Plain data, with the names that users write."""
        found: dict[str, Any] = {}
        if self.release is not None:
            found["pretend"] = self.release.name
        if self.caps:
            found["cap"] = {facts.api_name(key): version for key, version in self.caps.items()}
        return found

    @property
    def text(self) -> str:
        """In words, such as ``Kafka 0.10.2, Fetch up to v2``; without what follows from the caps."""
        parts = [f"Kafka {self.release.name}"] if self.release is not None else []
        return ", ".join(parts + [f"{facts.api_name(key)} up to v{version}" for key, version in self.caps.items()])

    @property
    def offer(self) -> str:
        """A note on what clients are offered, with what follows from the caps."""
        follows = f" (and so {', '.join(each.text for each in self.follows.values())})" if self.follows else ""
        return f"{OFFERED}{self.text}{follows}"

    def refusal(self, api_key: int, api_version: int) -> str:
        """A note on a request that is refused."""
        because = self.follows.get(api_key)
        why = f" ({because.reason})" if because is not None else ""
        return f"{facts.api_name(api_key)} v{api_version} refused: {OFFERED}{self.text}{why}"

    @property
    def negotiates(self) -> bool:
        """Whether it has ApiVersions (0.10.0)."""
        return self.release is None or self.release.negotiates

    @property
    def unanswered(self) -> bool:
        """Whether unknown requests get no response, as with 0.9; otherwise they end the connection."""
        return self.release is not None and _CLOSED <= release_order(self.release.name) < (0, 10)

    @property
    def states_range(self) -> bool:
        """Whether the refusal of an ApiVersions request has the range that is served (KIP-511)."""
        return self.release is None or release_order(self.release.name) >= _OWN_RANGE

    @property
    def features(self) -> Features | None:
        """The features offered; None: the broker's. With caps: those of brokers whose versions do not exceed them, so
        that a client is never offered a feature without the versions it needs (transaction.version 2 with Produce 7)."""
        if not self.caps:
            return None if self.release is None else of_release(self.release)
        if self.release is not None and self.release.role == "zk":
            return Features()
        return _features(frozenset(self.highest.items()), self.release.name if self.release is not None else "")

    def accepts(self, api_key: int, api_version: int) -> bool:
        """Whether such a broker understands a request of this version."""
        if api_version > self.highest.get(api_key, api_version):
            return False
        if api_key == API_VERSIONS and api_version > (facts.api(API_VERSIONS).versions.high or 0):
            return False  # we could not read the answer
        return self.release is None or self.release.serves(api_key, api_version)

    def offered(self, api_key: int, low: int, high: int, translated: bool = False) -> Range | None:
        """The range of an API of which the broker offers `low` to `high`; None if it is left out. `translated`: all of
        these are really served."""
        kept_from = low if translated else served_from(api_key, (low, high))
        if self.release is not None:
            promised = self.release.range(api_key)
            if promised is None:
                return None
            low, high = max(low, promised[0]), min(high, promised[1])
            kept_from = max(kept_from, (self.release.served(api_key) or promised)[0])
        high = min(high, self.highest.get(api_key, high))
        return (low, high) if max(low, kept_from) <= high else None

    def shortfall(self, offers: Mapping[int, Range]) -> list[Shortfall]:
        """The APIs of the profile that a broker with these offers does not serve."""
        promised = dict(self.release.offered) if self.release is not None else {key: offers[key] for key in offers}
        found = []
        for key in sorted(promised):
            low, high = promised[key] if self.release is not None else (0, promised[key][1])
            high = min(high, self.highest.get(key, high))
            theirs = offers.get(key)
            if high < low or (theirs is None and key not in _of_clients()):
                continue
            if theirs is None:
                found.append(Shortfall(key, (low, high), None))
            elif self.offered(key, *theirs) is None:
                found.append(Shortfall(key, (low, high), (served_from(key, theirs), theirs[1])))
        return found


@cache
def _features(caps: frozenset[tuple[int, int]], newest: str) -> Features:
    """The features of the newest release, up to `newest`, that offers no version above the caps."""
    found = Features()
    for name in releases.releases():
        each = releases.release(name)
        if newest and release_order(name) > release_order(newest):
            break
        if all((each.range(key) or (0, version))[1] <= version for key, version in caps):
            found = of_release(each)
    return found


@cache
def _of_clients() -> frozenset[int]:
    """APIs that clients use: those that the newest brokers have. What came and went was between brokers."""
    return frozenset(releases.release(releases.releases()[-1]).offers)


def find(name: str) -> Release:
    """A release by its name, also ``0.9`` for the only one of its kind; ValueError with the nearest."""
    known = releases.releases()
    fuller = [each for each in known if each.startswith(f"{name}.")]
    if len(fuller) == 1 and name not in known:
        name = fuller[0]
    try:
        return releases.release(name)
    except KeyError as error:
        raise ValueError(str(error.args[0])) from None


def api(name: str) -> int:
    """An API's key by its name; ValueError with the nearest."""
    try:
        return facts.api_key(name)
    except KeyError:
        names = [facts.api_name(key) for key in facts.api_keys()]
        near = difflib.get_close_matches(name, names, 1, 0.5)
        raise ValueError(f"there is no API {name!r}" + (f", did you mean {near[0]}?" if near else "")) from None


_CAP = re.compile(r"\s*([A-Za-z]+)\s*=\s*v?(-?\d+)\s*")


def caps(texts: Iterable[str]) -> dict[str, int]:
    """Caps from the command line, such as ``Fetch=11,Produce=7``. Raises ValueError."""
    found: dict[str, int] = {}
    for part in (part for text in texts for part in text.split(",")):
        match = _CAP.fullmatch(part)
        if match is None:
            raise ValueError(f"{part.strip()!r} is not API=VERSION, such as Fetch=11")
        if match[1] in found:
            raise ValueError(f"{match[1]} is capped twice")
        found[match[1]] = int(match[2])
    return found


def span(low: int, high: int) -> str:
    """``0-3``, or ``0``."""
    return str(low) if low == high else f"{low}-{high}"
