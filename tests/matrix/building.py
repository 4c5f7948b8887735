"""The client programs, built into .cache/matrix/clients; a client whose tools are missing says which."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from real.brokers.broker import JVM, REPOSITORY
from real.clients.java_programs import SOURCES

PROGRAMS = Path(__file__).parent / "programs"
BUILT = REPOSITORY / ".cache" / "matrix" / "clients"
BUILD_SECONDS = 1200


class Missing(Exception):
    """This client cannot be had here; the text says why."""


@dataclass(frozen=True)
class Client:
    """A client library. `build` gives the command that BOOTSTRAP and RUN are added to; Missing where it cannot."""

    name: str
    build: Callable[[], list[str]]


def needs(*tools: str) -> None:
    """Raise Missing unless all of these are on the PATH."""
    for tool in tools:
        if shutil.which(tool) is None:
            raise Missing(f"no {tool} on the PATH")


def step(command: Sequence[str], folder: Path) -> None:
    """One step of a build; Missing with its last lines of output where it fails."""
    done = subprocess.run(
        command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=BUILD_SECONDS
    )
    if done.returncode:
        lines = (done.stderr + done.stdout).strip().splitlines()[-3:]
        raise Missing(f"`{' '.join(command[:3])}` failed: {' '.join(lines)}")


def sources(name: str, *more: str) -> Path:
    """The folder to build in, with the program's files copied there where they changed."""
    folder = BUILT / name
    for path in [*(PROGRAMS / name).rglob("*"), *(PROGRAMS / each for each in more)]:
        target = folder / (path.relative_to(PROGRAMS / name) if path.is_relative_to(PROGRAMS / name) else path.name)
        if path.is_file() and not (target.exists() and target.read_bytes() == path.read_bytes()):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    return folder


def python(name: str) -> Client:
    """A program for this interpreter."""
    return Client(name, lambda: [sys.executable, str(PROGRAMS / name / "program.py")])


def old_kafka_python(release: str) -> Client:
    """A release before the one that the tests have, in a folder of its own beside its program."""

    def build() -> list[str]:
        folder = BUILT / f"kafka-python-{release}"
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "kafka").exists():
            pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder)]
            step([*pip, f"kafka-python=={release}"], folder)
        shutil.copy(PROGRAMS / "kafka-python" / "old.py", folder)
        step([sys.executable, "-c", "import kafka"], folder)  # 1.4 fails from Python 3.12 on
        return [sys.executable, str(folder / "old.py")]

    return Client(f"kafka-python-{release}", build)


def kcat() -> Client:
    def build() -> list[str]:
        needs("kcat")
        return python("kcat").build()

    return Client("kcat", build)


def go(name: str) -> Client:
    def build() -> list[str]:
        needs("go")
        folder = sources(name, "stages.go")
        step(["go", "build", "-mod=mod", "-o", "program", "."], folder)
        return [str(folder / "program")]

    return Client(name, build)


def node(name: str) -> Client:
    """A program for Node: the one on the PATH, or the one that its package.json asks for."""

    def build() -> list[str]:
        needs("node", "npm")
        folder = sources(name, "node_stages.mjs")
        if not (folder / "node_modules").exists():
            step(["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--silent"], folder)
        own = folder / "node_modules" / ".bin" / "node"
        return [str(own) if own.exists() else "node", str(folder / "program.mjs")]

    return Client(name, build)


def cargo(name: str) -> Client:
    def build() -> list[str]:
        needs("cargo", "cc", "make")
        folder = sources(name)
        step(["cargo", "build", "--quiet"], folder)
        return [str(folder / "target" / "debug" / "rdkafka-client")]

    return Client(name, build)


def java(release: str) -> Client:
    """Kafka's own client of this release."""

    def build() -> list[str]:
        needs("java", "javac", "mvn")
        folder = BUILT / f"java-{release}"
        if not any(folder.glob("kafka-clients-*.jar")):
            settings = [f"-Drelease={release}", f"-Djars={folder}"]
            pom = str(PROGRAMS / "java" / "pom.xml")
            step(["mvn", "-f", pom, "-q", "-B", "-ntp", *settings, "dependency:copy-dependencies"], PROGRAMS)
        return java_command(folder, f"{folder}/*")

    return Client(f"java-{release}", build)


def java_command(folder: Path, jars: str) -> list[str]:
    """Compile the Java program into this folder against these jars; what 0.10 lacks only where they have it."""
    program, later = PROGRAMS / "java" / "Program.java", PROGRAMS / "java" / "Later.java"
    compiler = ["javac", "-nowarn", "-cp", jars, "-sourcepath", str(SOURCES), "-d", str(folder)]
    try:
        step([*compiler, str(program), str(later)], folder)
    except Missing:
        step([*compiler, str(program)], folder)
    return [*JVM, "-cp", f"{folder}:{jars}", "Program"]


CLIENTS = [
    *(java(release) for release in ("4.4.0", "3.9.1", "2.8.2", "1.1.1", "0.11.0.3", "0.10.2.2")),
    python("confluent-kafka"),
    cargo("rdkafka"),
    kcat(),
    python("kafka-python"),
    *(old_kafka_python(release) for release in ("2.2.15", "2.0.6", "1.4.7")),
    python("aiokafka"),
    go("franz-go"),
    go("sarama"),
    go("kafka-go"),
    node("kafkajs"),
    node("platformatic-kafka"),
]
