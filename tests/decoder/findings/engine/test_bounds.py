"""A bounded dict keeps its bound, however something is put in."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable, Iterator

import pytest
from barnabas.bounded import BoundedDict, LruDict
from barnabas.decoder.findings.engine import clusters
from barnabas.decoder.findings.models.groups import Groups
from traffic.conversations import Conversations
from traffic.recordings import inspected

WAYS: dict[str, Callable[[BoundedDict[int, list[int]], int], object]] = {
    "setitem": lambda kept, n: kept.__setitem__(n, [n]),
    "setdefault": lambda kept, n: kept.setdefault(n, [n]).append(n),
    "update": lambda kept, n: kept.update({n: [n]}),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_bound_is_kept(way: str) -> None:
    kept: BoundedDict[int, list[int]] = BoundedDict(3)
    for number in range(100):
        WAYS[way](kept, number)
    assert list(kept) == [97, 98, 99]


def test_what_is_there_stays() -> None:
    kept: BoundedDict[int, list[int]] = BoundedDict(3)
    assert kept.setdefault(1, [1]) is kept.setdefault(1, [2]) and kept[1] == [1]


def test_an_insert_at_the_bound_walks_over_nothing() -> None:
    walks = []

    class Watched(BoundedDict[int, int]):
        def __iter__(self) -> Iterator[int]:
            walks.append(len(self))
            return super().__iter__()

    kept = Watched(50)
    for number in range(1000):
        kept[number] = number
    assert len(kept) == 50 and not walks  # the first key of a plain dict stands behind the places of all that were dropped
    assert list(kept) == [*range(950, 1000)] and walks


@pytest.mark.parametrize("kind", [BoundedDict, LruDict])
def test_copies_and_unions_have_its_bound(kind: type[BoundedDict[int, str]]) -> None:
    kept = kind(3)
    kept.update(dict.fromkeys(range(3), "old"))
    for joined, expected in (
        (kept.copy(), {0: "old", 1: "old", 2: "old"}),
        (kept | {2: "new", 3: "new"}, {1: "old", 2: "new", 3: "new"}),
        ({2: "new", 3: "new"} | kept, {3: "new", 0: "old", 1: "old"} | {2: "old"}),
    ):
        assert type(joined) is kind and len(joined) == 3
        assert dict(joined) == dict(list(expected.items())[-3:])
        joined[9] = "newest"
        assert len(joined) == 3 and 9 in joined
    assert dict(kept) == dict.fromkeys(range(3), "old"), "it is itself what it was"
    kept |= {3: "new"}
    assert type(kept) is kind and list(kept) == [1, 2, 3]
    with pytest.raises(TypeError):
        kept | [(1, "a list of pairs")]


def test_it_travels_between_processes() -> None:
    kept: BoundedDict[int, list[int]] = BoundedDict(3)
    for number in range(5):
        kept[number] = [number]
    copy = pickle.loads(pickle.dumps(kept))
    assert copy == kept
    copy[5] = [5]
    assert list(copy) == [3, 4, 5]


def test_the_state_of_the_traffic_travels_between_processes() -> None:
    traffic = inspected("groups-storm").traffic
    copy = pickle.loads(pickle.dumps(traffic))
    assert copy.now_ns == traffic.now_ns > 0
    assert [g.id for g in Groups.of(copy).all()] == [g.id for g in Groups.of(traffic).all()] != []


def test_a_broker_that_makes_up_names_costs_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_MOST_NODES", "_MOST_TOPICS", "_MOST_PARTITIONS"):
        monkeypatch.setattr(clusters, name, 50)
    talk = Conversations()
    connection = talk.open()
    for round_ in range(20):
        brokers = [{"node_id": round_ * 10 + n, "host": f"b{round_}-{n}", "port": 9092} for n in range(10)]
        topics = [
            {"name": f"t{round_}-{n}", "topic_id": uuid.UUID(int=round_ * 10 + n + 1), "partitions": [{"leader_id": round_ * 10}]}
            for n in range(10)
        ]
        talk.ask(connection, "Metadata", 12, {"topics": None}, {"cluster_id": "c", "brokers": brokers, "topics": topics})
    cluster = talk.inspector.traffic.cluster_of("b19-9:9092")
    assert [len(kept) for kept in (cluster.nodes, cluster.leaders, cluster.topic_ids)] == [50, 50, 50]
    assert ("t19-9", 0) in cluster.leaders and ("t0-0", 0) not in cluster.leaders
    assert len({id(leader) for leader in cluster.leaders.values()}) == 5, "the partitions of a response share their leaders"
