"""A few pairs of the matrix of clients and brokers (`make matrix`) that no other test has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from matrix import faults
from matrix.brokers import BROKERS, Address
from matrix.building import CLIENTS, Client, Missing, kcat, python
from matrix.pair import run_pair, succeeded, worse


@pytest.fixture(scope="module")
def address(request: pytest.FixtureRequest) -> Iterator[Address]:
    """A broker of this release of its own: the topics that the matrix asks for have two partitions."""
    (broker,) = (broker for broker in BROKERS if broker.name == request.param)
    with broker.running() as address:
        yield address


def command(client: Client) -> list[str]:
    """How to run it; skips where it cannot be had."""
    try:
        return client.build()
    except Missing as reason:
        pytest.skip(str(reason))


# What works on this broker, and the finding that says why not.
PAIRS: list[tuple[Client, dict[str, bool], str]] = [
    (kcat(), {"group": True, "transactions": False}, ""),
    # sends batches of format 2 whatever the broker is
    (python("aiokafka"), {"group": False, "transactions": False, "admin": False}, "corrupt-batch"),
]


@pytest.mark.slow  # a broker of its own, and programs that try what cannot work
@pytest.mark.parametrize("address", ["0.10.2"], indirect=True)
@pytest.mark.parametrize(("client", "works", "finding"), [pytest.param(*pair, id=pair[0].name) for pair in PAIRS])
def test_on_an_old_broker(client: Client, works: dict[str, bool], finding: str, address: Address) -> None:
    result = run_pair(command(client), address, translate=False)
    assert list(faults.of(result)) == []
    assert succeeded(result["direct"]) == works
    assert {found["id"] for found in result["proxied"]["findings"]} == {finding} - {""}


OLD_KAFKA_PYTHON = ["kafka-python-2.2.15", "kafka-python-2.0.6", "kafka-python-1.4.7"]
WORK_DIRECTLY = {
    "1.1": ["kafka-python", "confluent-kafka", "aiokafka", *OLD_KAFKA_PYTHON],
    "0.11": ["java-1.1.1"],
    "0.10.2": ["kafka-python", "confluent-kafka", *OLD_KAFKA_PYTHON],
    "0.9": OLD_KAFKA_PYTHON,
    "0.8.2": OLD_KAFKA_PYTHON,
}
"""Clients of which something works on these brokers."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("address", "name"),
    [(broker, name) for broker, names in WORK_DIRECTLY.items() for name in names],
    indirect=["address"],
)
def test_translation_is_never_worse(name: str, address: Address) -> None:
    """All clients and brokers: `make matrix`."""
    (client,) = (client for client in CLIENTS if client.name == name)
    result = run_pair(command(client), address)
    assert any(succeeded(result["direct"]).values())
    assert worse(result["direct"], result["translated"]["said"]) == []
