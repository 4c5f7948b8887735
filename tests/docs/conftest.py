"""The environment of the documentation, made once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from barnabas.ui.testing.cluster import EmbeddedCluster
from docs.environment import Environment


@pytest.fixture(scope="package")
def cluster() -> Iterator[EmbeddedCluster]:
    """The mock broker of the environment."""
    cluster = EmbeddedCluster(1)
    try:
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(scope="package")
def environment(cluster: EmbeddedCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """A folder with everything that the pages speak of."""
    environment = Environment(tmp_path_factory.mktemp("environment"), cluster.address)
    try:
        yield environment
    finally:
        environment.close()
