"""An accelerator that was built with gcc's address and undefined-behaviour sanitizers, and what is run over it (`make sanitize`).

    PYTHONPATH=tests python -m torture.decoder.sanitized run --count 100000     the fuzz driver
    PYTHONPATH=tests python -m torture.decoder.sanitized targets --runs 20000   the targets of torture.native
    PYTHONPATH=tests python -m torture.decoder.sanitized no-memory              every allocation fails once
    PYTHONPATH=tests python -m torture.decoder.sanitized all --count 100000     all of it

Builds decoder/native/*.c into a folder of its own, beside the one that is installed, and stops at the first report.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[3]
NAME = "barnabas.decoder._native"


def library(name: str) -> str | None:
    """Where gcc has a runtime library, None without gcc or without the library."""
    gcc = shutil.which("gcc")
    if gcc is None:
        return None
    found = subprocess.run([gcc, f"-print-file-name={name}"], capture_output=True, text=True, timeout=30).stdout.strip()
    return found if os.path.isabs(found) else None


def missing() -> str:
    """Why nothing can be built with sanitizers here; empty if it can."""
    return "" if library("libasan.so") else "gcc with its sanitizer libraries is not here"


def build(folder: Path) -> Path:
    """The extension, with sanitizers."""
    out = folder / "_native.so"
    flags = ["-shared", "-fPIC", "-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined"]
    sources = sorted(str(p) for p in (ROOT / "decoder" / "native").glob("*.c"))
    include = f"-I{sysconfig.get_path('include')}"
    subprocess.run(
        ["gcc", *flags, "-fno-sanitize-recover=all", include, *sources, "-o", str(out)], check=True
    )
    return out


def environment() -> dict[str, str]:
    """What the child needs: the runtime loaded first, every object from malloc itself, so that it is watched."""
    runtime = library("libasan.so")
    assert runtime
    return {
        "LD_PRELOAD": runtime,
        "PYTHONMALLOC": "malloc",
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:abort_on_error=0",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        "BARNABAS_PURE": "",
    }


def load(path: str) -> None:
    """Put the built extension where the decoder looks for its accelerator."""
    spec = importlib.util.spec_from_file_location(NAME, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module
    spec.loader.exec_module(module)


def main(arguments: list[str]) -> int:
    """Build, and hand the rest of the command line to the driver in a child that uses what was built."""
    if arguments and arguments[0] == "with":
        load(arguments[1])
        if arguments[2] == "targets":
            from torture.native import targets

            return targets.main(arguments[3:])
        if arguments[2] == "no-memory":
            sys.path.insert(0, str(ROOT / "tests" / "decoder" / "native"))
            import no_memory

            no_memory.main()
            return 0
        from . import fuzz

        return fuzz.main(arguments[2:])
    what = arguments[0] if arguments else "run"
    if library("libasan.so") is None:
        print("gcc with its sanitizer libraries is not here: nothing was run")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        extension = build(Path(folder))
        failed = 0
        if what in ("targets", "all"):
            failed |= child(extension, "targets", *(arguments[1:] if what == "targets" else ("--runs", "5000")))
        if what in ("no-memory", "all"):
            failed |= child(extension, "no-memory")
        if what in ("run", "all"):
            failed |= fuzzed(extension, int(arguments[arguments.index("--count") + 1]) if "--count" in arguments else 20_000)
    return failed


def child(extension: Path, *arguments: str) -> int:
    """Run something over what was built: 1 if a sanitizer, or it, found a fault."""
    command = [sys.executable, "-m", "torture.decoder.sanitized", "with", str(extension), *arguments]
    done = subprocess.run(command, env=os.environ | environment(), timeout=3600)
    return int(done.returncode != 0)


def fuzzed(extension: Path, count: int) -> int:
    from . import fuzz

    module = ("torture.decoder.sanitized", "with", str(extension))
    report = fuzz.run(count, seed=5, tell=True, env=environment(), module=module)
    print(report.text())
    for failure in report.failures:
        print(f"FAILED {failure}")
    return int(bool(report.failures))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
