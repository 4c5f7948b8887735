"""What can be bridged between clients of one release and brokers of another, derived from the tables and the steps."""

from __future__ import annotations

from dataclasses import dataclass

from ...decoder.reference.releases import Release
from ...decoder.schema import facts
from .fields import lost_by_definition
from .steps import boundaries, differences, has_step, why_droppable, why_impossible
from .version_ranges import API_VERSIONS, of_clients, of_release


@dataclass(frozen=True, slots=True)
class Bridge:
    """One API. `served`: the client's versions that the broker serves as they are; `translated`: (version, the broker's)
    for those that are bridged; `refused`: (version, why) for those that are not.

    `only_if_unused`: fields whose use makes a translated request be refused; `left_out`: (field, what its loss means).
    `changes`: what else is not the same.
    """

    api_key: int
    served: tuple[int, ...]
    translated: tuple[tuple[int, int], ...]
    refused: tuple[tuple[int, str], ...]
    only_if_unused: tuple[str, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()
    changes: tuple[str, ...] = ()

    @property
    def api(self) -> str:
        return facts.api_name(self.api_key)


def bridges(client: Release, broker: Release) -> list[Bridge]:
    """Every API that brokers of the client's own release serve to clients, by api key."""
    serves = of_release(broker)
    found = []
    for key, (low, high) in of_release(client).items():
        if not of_clients(key):
            continue
        found.append(_bridge(key, range(low, high + 1), serves.get(key)))
    return found


def _bridge(key: int, versions: range, ends: tuple[int, int] | None) -> Bridge:
    if ends is None:
        if key == API_VERSIONS:
            return Bridge(key, (), tuple((version, version) for version in versions), ())
        return Bridge(key, (), (), tuple((version, "the broker does not have it") for version in versions))
    served, translated, refused = [], [], []
    unused: dict[str, None] = {}
    left_out: dict[str, str] = {}
    changes: dict[str, None] = {}
    for version in versions:
        target = min(max(version, ends[0]), ends[1])
        if target == version:
            served.append(version)
        elif why := why_impossible(key, version, target):
            refused.append((version, why))
        else:
            translated.append((version, target))
            changes |= dict.fromkeys(differences(key, version, target))
            for path in _lost(key, version, target):
                reason = why_droppable(key, path)
                if reason is None:
                    unused[path] = None
                else:
                    left_out[path] = reason
    return Bridge(
        key, tuple(served), tuple(translated), tuple(refused), tuple(unused), tuple(left_out.items()), tuple(changes)
    )


def _lost(key: int, source: int, target: int) -> list[str]:
    """Fields of requests that are lost unless they hold their default, without those that a step converts."""
    lost: dict[str, None] = {}
    way = "up" if target > source else "down"
    for boundary in boundaries(source, target):
        before, behind = (boundary - 1, boundary) if way == "up" else (boundary, boundary - 1)
        if not has_step("request", way, key, boundary):
            lost |= dict.fromkeys(lost_by_definition("request", key, before, behind))
    return list(lost)
