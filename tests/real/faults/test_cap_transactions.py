"""Kafka's own transactional producer behind caps: it is offered no transaction.version that its Produce version has no part in."""

from __future__ import annotations

import uuid

import pytest
from barnabas.plugins.versions.profile import Profile
from barnabas.proxy import ProxyConfig
from barnabas.proxy.events import show
from barnabas.proxy.negotiation.version_negotiation import VersionsConfig
from harness.proxies import Proxy
from real.brokers.broker import Cluster
from real.clients import java_programs
from real.clients.confluent_client import create_topic

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.mark.parametrize("cap", [{"Produce": 7}, {"EndTxn": 3}])
def test_a_capped_producer_commits(broker: Cluster, cap: dict[str, int]) -> None:
    topic = create_topic(broker.bootstrap, f"capped-{uuid.uuid4().hex[:8]}")
    versions = VersionsConfig(Profile.of("", cap))
    with Proxy(ProxyConfig(upstream=broker.addresses[0], versions=versions)) as proxy:
        output = java_programs.run("OneTransaction", java_programs.broker_jars(), show(proxy.address), topic, 3)
    assert output.split("\n")[0] == "committed"
