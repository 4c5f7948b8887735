"""The Java programs of java/ and of the matrix: compiled once for each set of jars, and run."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from harness.waiting import PATIENCE
from real.brokers.broker import JVM, REPOSITORY, jar_directory

SOURCES = Path(__file__).with_name("java")
COMPILED = REPOSITORY / ".cache" / "java"
Jars = Iterable[Path]


def jars_of(release: str) -> list[Path]:
    """The jars with which programs use Kafka's classes of a release: a whole broker of it, or its client with what the
    broker of `make broker` brings for all."""
    cache = REPOSITORY / ".cache"
    if old := sorted((cache / "old" / release).glob("*.jar")):
        return old
    broker = sorted(jar_directory().glob("*.jar"))
    own = [jar for jar in broker if not jar.name.startswith("kafka")]
    if any(jar.name == f"kafka-clients-{release}.jar" for jar in broker):
        return broker
    client = cache / "clients" / f"kafka-clients-{release}.jar"
    assert client.exists(), "Kafka's jars are fetched by: make broker"
    return [client, *own]


def broker_jars() -> list[Path]:
    """Those of the broker that the tests run, with its client."""
    return sorted(jar_directory().glob("*.jar"))


def compiled(program: Path, jars: Jars) -> Path:
    """The folder with the classes of a program, and of what it uses from ``SOURCES``.

    They are kept for the next run, until a source, the Java or the jars are others. Raises subprocess.CalledProcessError
    where the jars lack something that the program needs.
    """
    javac = os.path.realpath(shutil.which("javac") or "javac")
    seen = hashlib.sha256("\n".join([javac, *map(str, jars), str(program)]).encode())
    for source in sorted({program, *SOURCES.rglob("*.java")}):
        seen.update(source.read_bytes())
    folder = COMPILED / f"{program.stem}-{seen.hexdigest()[:16]}"
    if not folder.exists():
        COMPILED.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix="making-", dir=COMPILED))
        try:
            command = [javac, "-nowarn", "-cp", class_path(jars), "-sourcepath", str(SOURCES), "-d", str(made)]
            subprocess.run([*command, str(program)], check=True, capture_output=True, text=True, timeout=PATIENCE)
            made.rename(folder)
        except OSError:  # another worker was first
            assert folder.exists()
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return folder


def class_path(jars: Jars) -> str:
    return ":".join(map(str, jars))


def command(program: str, jars: Jars, *arguments: object, options: Iterable[str] = ()) -> list[str]:
    """What runs a program of java/, or of a folder in it, with these jars; `options` are the JVM's."""
    jars = list(jars)
    (source,) = SOURCES.rglob(f"{program}.java")
    classes = compiled(source, jars)
    return [*JVM, *options, "-cp", f"{classes}:{class_path(jars)}", program, *map(str, arguments)]


def run(program: str, jars: Jars, *arguments: object, given: str = "", options: Iterable[str] = ()) -> str:
    """What it prints; `given` is its input. It must end well."""
    words = command(program, jars, *arguments, options=options)
    done = subprocess.run(words, input=given, capture_output=True, text=True, timeout=2 * PATIENCE, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def answers(program: str, jars: Jars, lines: list[str]) -> list[str]:
    """What it answers to each line of its input."""
    found = run(program, jars, given="\n".join(lines)).split("\n")[:-1]
    assert len(found) == len(lines), found[-3:]
    return found
