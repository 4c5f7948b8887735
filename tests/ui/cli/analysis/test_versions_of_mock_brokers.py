"""librdkafka's mock brokers, whose refusals and Metadata are not as Kafka's: they are asked as real clients ask them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from barnabas.decoder.schema import facts
from barnabas.proxy.replay.dialer import Dialer
from barnabas.proxy.replay.target import TargetCluster
from barnabas.ui.cli.analysis.broker_versions import ask_cluster
from barnabas.ui.testing.cluster import EmbeddedCluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    found = EmbeddedCluster(2)
    yield found
    found.stop()


def test_versions_asks_all_of_them(cluster: EmbeddedCluster) -> None:
    asked = ask_cluster(cluster.address)
    assert asked.problems == [] and sorted(asked.node_ids.values()) == [1, 2]
    assert [broker.offered[facts.api_key("ApiVersions")] for broker in asked.brokers] == [(0, 2), (0, 2)]


def test_a_replay_can_be_sent_to_them(cluster: EmbeddedCluster) -> None:
    target = TargetCluster(cluster.address, Dialer())
    try:
        assert sorted(target.brokers.values()) == sorted(cluster.addresses)
        assert target.offers[facts.api_key("Produce")][0] == 0
    finally:
        target.close()
