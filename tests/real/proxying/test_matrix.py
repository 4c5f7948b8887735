"""A few pairs of the matrix of clients and brokers (`make matrix`) that no other test has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from matrix import faults
from matrix.brokers import BROKERS, Address
from matrix.building import Client, Missing, kcat, python
from matrix.pair import run_pair, succeeded, worse

OLD = "0.10.2"


@pytest.fixture(scope="module")
def address() -> Iterator[Address]:
    """An old broker of its own: the topics that the matrix asks for have two partitions."""
    (broker,) = (broker for broker in BROKERS if broker.name == OLD)
    with broker.running() as address:
        yield address


# What works on this broker, and the finding that says why not.
PAIRS: list[tuple[Client, dict[str, bool], str]] = [
    (kcat(), {"group": True, "transactions": False}, ""),
    # sends batches of format 2 whatever the broker is
    (python("aiokafka"), {"group": False, "transactions": False, "admin": False}, "corrupt-batch"),
]


@pytest.mark.slow  # a broker of its own, and programs that try what cannot work
@pytest.mark.parametrize(("client", "works", "finding"), [pytest.param(*pair, id=pair[0].name) for pair in PAIRS])
def test_on_an_old_broker(client: Client, works: dict[str, bool], finding: str, address: Address) -> None:
    try:
        command = client.build()
    except Missing as reason:
        pytest.skip(str(reason))
    result = run_pair(command, address, translate=False)
    assert list(faults.of(result)) == []
    assert succeeded(result["direct"]) == works
    assert {found["id"] for found in result["proxied"]["findings"]} == {finding} - {""}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kafka-python", "confluent-kafka", "aiokafka"])
def test_translation_is_never_worse(name: str, address: Address) -> None:
    """All clients and brokers: `make matrix`."""
    result = run_pair(python(name).build(), address)
    assert succeeded(result["direct"])
    assert worse(result["direct"], result["translated"]["said"]) == []
