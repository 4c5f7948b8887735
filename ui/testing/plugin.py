"""The hooks of the pytest plugin: options, the fixture `barnabas`, the marker `barnabas_cassette`, reports of failing tests."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ...diagnostics import contained

if TYPE_CHECKING:
    from ...proxy.processes.fork_server import ForkServer
    from .cassette import Cassette
    from .fixture import Barnabas
    from .kafka import Kafka

Address = tuple[str, int]
Addresses = Callable[[], list[Address]]

_FIXTURE: pytest.StashKey[Barnabas] = pytest.StashKey()
_KAFKA: pytest.StashKey[Kafka] = pytest.StashKey()
_SHARED_BROKER = "barnabas_kafka"
"""Where a worker of pytest-xdist finds the addresses of the broker that all of them share."""
ON_MISS = ("fail", "passthrough", "record")
OUTCOMES = ("fail", "allow")
CONTENTS = ("ignore", "check")
MARKER = "barnabas_cassette(file, on_miss='fail', unmatched='fail', unused='allow', contents='ignore')"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("barnabas", "Kafka through a proxy")
    group.addoption(
        "--barnabas-broker",
        metavar="HOST:PORT[,HOST:PORT...]",
        help="the cluster behind the fixture `barnabas` (default: librdkafka's mock brokers)",
    )
    group.addoption(
        "--barnabas-kafka",
        metavar="VERSION",
        help="a real Apache Kafka of this version behind the fixture `barnabas`, one for the whole run, fetched by Maven the first "
        "time (needs Java); for example 4.4.0",
    )
    group.addoption(
        "--barnabas-record", metavar="DIR", help="record the traffic of each test that uses the fixture, in DIR/TEST"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{MARKER}: the fixture `barnabas` answers from a recording instead of a cluster; on_miss: what happens to requests "
        "that were not recorded (fail: an error, passthrough, record); unmatched, unused: fail the test for such requests, and "
        "for recorded answers that were not used, or allow them; contents: check, or a function of a record, to compare "
        "produced records",
    )
    if config.getoption("--barnabas-kafka") and config.getoption("--barnabas-broker"):
        raise pytest.UsageError("--barnabas-kafka and --barnabas-broker cannot be combined: give only one")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start the real broker when it is clear that a test wants it; here, so that an error is reported once."""
    config = session.config
    if hasattr(config, "workerinput") or config.getoption("collectonly"):
        return
    if any("barnabas" in getattr(item, "fixturenames", ()) for item in session.items):
        _start_kafka(config)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """pytest-xdist starts a worker: all of them share a broker that is this process's, as only it sees the last of them end."""
    kafka = _start_kafka(node.config)
    if kafka is not None:
        node.workerinput[_SHARED_BROKER] = kafka.addresses


def pytest_unconfigure(config: pytest.Config) -> None:
    kafka = config.stash.get(_KAFKA, None)
    if kafka is not None:
        del config.stash[_KAFKA]
        kafka.stop()


def _start_kafka(config: pytest.Config) -> Kafka | None:
    """The broker of `--barnabas-kafka`, started once; None without the option."""
    version = config.getoption("--barnabas-kafka")
    if not version:
        return None
    if _KAFKA not in config.stash:
        from .kafka import prepare, start
        from .kafka_release import KafkaFailed, release

        try:
            found = release(version)
            prepare(found)
            config.stash[_KAFKA] = start(found)
        except KafkaFailed as error:
            raise pytest.UsageError(f"--barnabas-kafka {version}: {error}") from None
    return config.stash[_KAFKA]


@pytest.fixture(scope="session")
def _barnabas_cluster(pytestconfig: pytest.Config) -> Iterator[Addresses]:
    """The addresses of the cluster's brokers; the embedded one starts when they are asked for."""
    shared = getattr(pytestconfig, "workerinput", {}).get(_SHARED_BROKER)
    kafka = pytestconfig.stash.get(_KAFKA, None)
    given = pytestconfig.getoption("--barnabas-broker")
    if shared is not None:
        addresses = [(host, port) for host, port in shared]
        yield lambda: addresses
    elif kafka is not None:
        yield lambda: kafka.addresses
    elif given:
        yield lambda: _addresses(given)
    else:
        from .cluster import EmbeddedCluster

        cluster = EmbeddedCluster()
        yield lambda: cluster.addresses
        cluster.stop()


@pytest.fixture(scope="session")
def _barnabas_fork_server() -> Iterator[ForkServer | None]:
    """Where the proxies' processes come from: each of a session's tests has a proxy, and must not wait for it to load."""
    from ...proxy.processes.fork_server import ForkServer

    if not ForkServer.available:
        yield None
        return
    fork_server = ForkServer()
    yield fork_server
    fork_server.close()


@pytest.fixture
def barnabas(
    request: pytest.FixtureRequest, _barnabas_fork_server: ForkServer | None, _barnabas_cluster: Addresses
) -> Iterator[Barnabas]:
    """A Kafka cluster through a proxy of this test's own: faults, exchanges, expectations (`ui.testing.fixture`)."""
    from .cluster import OWN_FINDINGS
    from .fixture import Barnabas

    embedded = not (request.config.getoption("--barnabas-broker") or request.config.getoption("--barnabas-kafka"))
    record = request.config.getoption("--barnabas-record")
    directory = Path(tempfile.mkdtemp(prefix="barnabas-test-"))
    try:
        marker = request.node.get_closest_marker("barnabas_cassette")
        cassette = None if marker is None else _cassette(request, marker, _barnabas_cluster)
        upstreams = _barnabas_cluster() if cassette is None else _addresses(cassette.served.bootstrap)
        where = Path(record) / request.node.name.replace("/", "_") if record else None
        known = OWN_FINDINGS if embedded else None
        fixture = Barnabas(upstreams[0], directory, where, _barnabas_fork_server, known, upstreams[1:], cassette)
        fixture.start()
        request.node.stash[_FIXTURE] = fixture
        try:
            yield fixture
        finally:
            fixture.stop()
            del request.node.stash[_FIXTURE]
        if faults := fixture.cassette_faults(ended=False):  # what clients did that fixtures have closed since
            pytest.fail("\n".join(faults), pytrace=False)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _addresses(text: str) -> list[Address]:
    from ...errors import BarnabasError
    from ..cli.common.address import parse_all

    try:
        return parse_all([text], "--barnabas-broker")
    except BarnabasError as error:
        raise pytest.UsageError(str(error)) from None


def _cassette(request: pytest.FixtureRequest, marker: pytest.Mark, cluster: Addresses) -> Cassette:
    from ...captures import NotACapture
    from ...proxy.serve import Contents, OnMiss, ServeConfig, Served, ServeError
    from .cassette import Cassette, CassetteOutcome

    def arguments(
        file: str, on_miss: str = "fail", unmatched: str = "fail", unused: str = "allow", contents: Any = "ignore"
    ) -> tuple[str, str, str, str, Any]:
        return file, on_miss, unmatched, unused, contents

    try:
        file, on_miss, unmatched, unused, contents = arguments(*marker.args, **marker.kwargs)
    except TypeError as error:
        wrong = str(error).partition("() ")[2]  # behind the name of the function
        text = f"wrong use of the marker {MARKER}: {wrong}"
        raise pytest.fail.Exception(text, pytrace=False) from None
    known = {"on_miss": (on_miss, ON_MISS), "unmatched": (unmatched, OUTCOMES), "unused": (unused, OUTCOMES)}
    if not callable(contents):
        known["contents"] = contents, CONTENTS
    for name, (value, values) in known.items():
        if value not in values:
            pytest.fail(f"{name} is {', '.join(values)} and not {value!r}", pytrace=False)
    path = Path(file) if Path(file).is_absolute() else request.path.parent / file
    if on_miss != "record" and not path.exists():
        pytest.fail(f"there is no cassette {path}; on_miss='record' creates it", pytrace=False)
    broker = None
    if on_miss != "fail":
        broker = cluster()[0]
    compared = contents if callable(contents) else Contents(contents)
    served = Served(ServeConfig(path, on_miss=OnMiss(on_miss), broker=broker, contents=compared))
    try:
        served.start()
    except (ServeError, NotACapture, OSError) as error:
        pytest.fail(f"the cassette {file} cannot be served: {error}", pytrace=False)
    return Cassette(served, CassetteOutcome(unmatched), CassetteOutcome(unused))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    try:
        result = yield
    except BaseException:
        if (fixture := item.stash.get(_FIXTURE, None)) is not None:
            fixture.cassette_faults()  # the report of the failure shows it
        raise
    fixture = item.stash.get(_FIXTURE, None)
    if fixture is not None and (missed := fixture.never_hit()):
        names = ", ".join(map(str, missed))
        pytest.fail(f"never hit: {names}; if that is allowed, inject it with required=False", pytrace=False)
    if fixture is not None and (faults := fixture.cassette_faults()):
        pytest.fail("\n".join(faults), pytrace=False)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    report = yield
    fixture = item.stash.get(_FIXTURE, None)
    if fixture is not None and report.when == "call" and report.failed:
        try:
            text = fixture.report()
        except Exception as error:  # the proxy may have died in any way: nothing may hide the test's own failure
            contained("the report of a failed test", error, reported=True)
            text = f"not known: {type(error).__name__}: {error}"
        report.sections.append(("Kafka traffic through barnabas", text))
    return report
