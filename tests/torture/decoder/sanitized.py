"""An accelerator that was built with gcc's address and undefined-behaviour sanitizers, and what is run over it (`make sanitize`).

    PYTHONPATH=tests python -m torture.decoder.sanitized run --count 100000     the fuzz driver
    PYTHONPATH=tests python -m torture.decoder.sanitized targets --runs 20000   the targets of torture.native
    PYTHONPATH=tests python -m torture.decoder.sanitized no-memory              every allocation fails once
    PYTHONPATH=tests python -m torture.decoder.sanitized all --count 100000     all of it

Builds the three extensions into a folder of its own, beside the one that is installed, and stops at the first report.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import runpy
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[3]
FOLDERS = "decoder", "captures", "proxy"
"""In the order in which they import each other."""


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
    """The extensions, with sanitizers: FOLDER.so of each, in this folder."""
    constants = runpy.run_path(str(ROOT / "setup.py"))
    flags = ["-shared", "-fPIC", "-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined"]
    for each in FOLDERS:
        sources = sorted(str(p) for p in (ROOT / each / "native").glob("*.c"))
        includes = [f"-I{path}" for path in (sysconfig.get_path("include"), ROOT, constants["write_constants"](each, folder))]
        command = ["gcc", *flags, "-fno-sanitize-recover=all", *includes, *sources, "-o", str(folder / f"{each}.so")]
        subprocess.run(command, check=True)
    return folder


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


def load(folder: str) -> None:
    """Put what was built where its packages look for their accelerators."""
    for each in FOLDERS:
        name = f"barnabas.{each}.native._native"
        spec = importlib.util.spec_from_file_location(name, Path(folder, f"{each}.so"))
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)


def main(arguments: list[str]) -> int:
    """Build, and hand the rest of the command line to the driver in a child that uses what was built."""
    if arguments and arguments[0] == "with":
        load(arguments[1])
        if arguments[2] == "targets":
            from torture.native import targets

            return targets.main(arguments[3:])
        if arguments[2] == "no-memory":
            from torture.native import no_memory

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
    report = fuzz.run(count, seed=5, verbose=True, env=environment(), module=module)
    print(report.text())
    for failure in report.failures:
        print(f"FAILED {failure}")
    return int(bool(report.failures))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
