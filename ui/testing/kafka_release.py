"""Releases of Apache Kafka on this machine: their jars, fetched by Maven into the user's cache once for each release.

    ~/.cache/barnabas/kafka/4.4.0/      the jars of a whole broker ($XDG_CACHE_HOME instead of ~/.cache where it is set)
                            formatted/  what Kafka's StorageTool writes into an empty log directory
                            classes.jsa what a broker loads, as its JVM maps it (class data sharing)

Made beside and put in place when complete, under a lock: several runs of tests may ask at the same time.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ...errors import BarnabasError

ARTIFACT = "org.apache.kafka:kafka_2.13"
OLDEST = (3, 9, 0)
"""Older ones are not tried."""
FETCH_SECONDS = 900.0
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>barnabas</groupId>
  <artifactId>kafka</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>{version}</version>
    </dependency>
    <!-- sends the broker's log to standard error; must fit the slf4j-api that Kafka brings -->
    <dependency>
      <groupId>org.slf4j</groupId>
      <artifactId>slf4j-simple</artifactId>
      <version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
"""


class KafkaFailed(BarnabasError, RuntimeError):
    """Apache Kafka cannot be had; the text says why and what to do."""


@dataclass(frozen=True)
class KafkaJars:
    """The jars of one release, in one folder."""

    folder: Path

    @property
    def class_path(self) -> str:
        return f"{self.folder.resolve()}/*"  # the archive of classes knows its jars by their paths

    @property
    def classes(self) -> Path:
        """The archive of classes (``kafka.archive``): a JVM with it starts in half the time. It may be missing."""
        return self.folder / "classes.jsa"

    @property
    def formatted(self) -> Path:
        """What an empty, formatted log directory holds (``kafka.prepare``). It may be missing."""
        return self.folder / "formatted"

    @property
    def complete(self) -> bool:
        return any(self.folder.glob("kafka_2.1*.jar"))

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder's lock: only one process prepares it at a time."""
        self.folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(self.folder.parent / f"{self.folder.name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/barnabas/kafka``; a relative path there counts for nothing, as the specification says."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "barnabas" / "kafka"


def java() -> str:
    """The Java that Kafka's own scripts would take: of JAVA_HOME, else of the PATH. KafkaFailed where there is none."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home, "bin"))) if home else None
    found = found or shutil.which("java")
    if found is None:
        raise KafkaFailed("no java in JAVA_HOME or on the PATH: install Java 17 or newer, which Apache Kafka needs")
    return found


def release(version: str) -> KafkaJars:
    """The release of this version, fetched if need be. Raises KafkaFailed."""
    if not re.fullmatch(r"\d{1,3}\.\d{1,3}\.\d{1,3}", version):
        raise KafkaFailed(f"{version!r} is not a release of Apache Kafka: write all three numbers, as in 4.4.0")
    if tuple(map(int, version.split("."))) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise KafkaFailed(f"Apache Kafka {version} cannot be started here: the oldest is {oldest}; give a newer one, or start it yourself")
    java()
    found = KafkaJars(cache_folder() / version)
    if not found.complete:
        with found.locked():
            if not found.complete:
                _fetch(version, found.folder)
    return found


def _fetch(version: str, folder: Path) -> None:
    mvn = shutil.which("mvn")
    if mvn is None:
        raise KafkaFailed(
            f"Apache Kafka {version} is not in {folder}, and there is no mvn on the PATH to fetch it: install Maven, or copy "
            f"the jars of {ARTIFACT}:{version} and of its dependencies into that folder"
        )
    print(f"barnabas: fetching Apache Kafka {version} with Maven into {folder} (about 120 MB, once)", flush=True)
    with tempfile.TemporaryDirectory(prefix=f"{version}-", dir=folder.parent) as made:
        pom, jars = Path(made, "pom.xml"), Path(made, "jars")
        pom.write_text(_POM.format(version=version))
        command = [mvn, "-q", "-B", "-ntp", "-f", str(pom), _COPY, "-DincludeScope=runtime", f"-DoutputDirectory={jars}"]
        try:
            done = subprocess.run(
                command, cwd=made, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=FETCH_SECONDS
            )
        except subprocess.TimeoutExpired:
            raise KafkaFailed(f"Maven did not fetch Apache Kafka {version} in {FETCH_SECONDS:g} s: is its repository reachable?") from None
        if done.returncode:
            raise KafkaFailed(_why_not(version, done.stdout + done.stderr))
        if folder.exists():  # somebody removed the jars in it
            shutil.rmtree(folder)
        jars.rename(folder)


def _why_not(version: str, output: str) -> str:
    errors = [line.partition("[ERROR]")[2].strip() for line in output.splitlines() if "[ERROR]" in line]
    first = next(filter(None, errors), output.strip()[:500])
    if re.search(rf"Could not find artifact \S*:{re.escape(version)}|{re.escape(version)} was not found", output):
        return f"Maven cannot find Apache Kafka {version} ({ARTIFACT}): give a released version, for example 4.4.0. Maven's message: {first}"
    return f"Maven cannot fetch Apache Kafka {version}: is its repository reachable (~/.m2/settings.xml)? Maven's message: {first}"
