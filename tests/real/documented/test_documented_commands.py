"""Commands of the documentation that ask a real broker, or send it what was recorded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from docs.environment import Environment
from docs.kinds import kind
from docs.pages import Command, commands
from harness.waiting import PATIENCE
from real.brokers.broker import Cluster

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def environment(broker: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for made in admin.create_topics([NewTopic(topic, 1) for topic in ("orders", "orders-b")]).values():
        made.exception(PATIENCE)  # another test may have made it
    environment = Environment(tmp_path_factory.mktemp("environment"), broker.addresses[0])
    try:
        yield environment
    finally:
        environment.close()


def of_a_broker() -> list[Any]:
    return [pytest.param(command, id=command.where) for command in commands() if kind(command) == "broker"]


@pytest.mark.parametrize("command", of_a_broker())
def test_the_command_works(command: Command, environment: Environment) -> None:
    done = environment.run(command.words)
    assert done.status in ({0, 1} if "--fail-on" in command.words else {0}), done.out + done.err
    assert "Traceback" not in done.out + done.err
