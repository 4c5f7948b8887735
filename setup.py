"""The packages, the accelerator's shared constants, and flags that harden it, as far as this compiler and linker take them. All else is in
pyproject.toml."""

from __future__ import annotations

import ast
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from setuptools import find_packages, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
PROGRAM = "#include <string.h>\nint fill(char *to, const char *from, unsigned size) { memcpy(to, from, size); return to[0]; }\n"
COMPILING = (
    ("-fstack-protector-strong",),
    ("-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=3"),
    ("-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2"),
    ("-fstack-clash-protection",),
)
LINKING = (("-Wl,-z,relro", "-Wl,-z,now"), ("-Wl,-z,noexecstack",))


def packages() -> list[str]:
    """The package, which is the repository's root, and those below it."""
    left_out = [f"{folder}{below}" for folder in ("tests", "bench", "docs", "examples", "build") for below in ("", ".*")]
    return ["barnabas", *(f"barnabas.{each}" for each in find_packages(str(ROOT), exclude=left_out))]


# -- constants: nothing is imported for them; only assignments of numbers, and the members of IntEnum classes, are read

SHARED = {
    "decoder": (),
    "captures": (
        ("decoder/wire/frame.py", "MAX_FRAME", "HEAD=FRAME_HEAD"),
        ("captures/pcap/packets.py", "MAX_LENGTH", "MAX_PAYLOAD", "FIN", "SYN", "RST", "PSH", "ACK"),
        ("captures/recording/index.py", "UNDECODED", "SURPLUS", "CUT", "MAX_STRING"),
        ("decoder/connection/correlation.py", "MOST_WAITING"),
    ),
    "proxy": (
        ("decoder/wire/acks.py", "ACKS_REACH"),
        ("proxy/relay/interception/frame_editor.py", "ENDPOINT_LIMIT"),
        ("proxy/relay/interception/interest/header_prefix.py", "MOST=PREFIX_MOST"),
        ("proxy/relay/connections/correlation.py", "IN_FLIGHT_LIMIT"),
        ("proxy/relay/connections/half_connection.py", "KEPT", "OWED_LIMIT", "TURN"),
        ("proxy/relay/connections/states.py", "HalfConnectionState.*=HALF_"),
        ("proxy/relay/connections/tracking_mode.py", "HEAD_KEPT"),
        ("proxy/ring/ring.py", "CHUNK=RING_CHUNK", "CAREFUL_CHUNK=RING_CAREFUL_CHUNK", "NONE=RING_NONE", "READERS=RING_READERS"),
        ("proxy/ring/ring.py", "HOT", "ASK", "_SLOT=SLOT", "DROP", "BLOCK", "Kind.DATA=RING_DATA", "Kind.SKIPPED=RING_SKIPPED"),
        # words of the header, then words of a reader's block
        ("proxy/ring/ring.py", "_W_SEQUENCE=SEQUENCE", "_W_POSITION=POSITION", "_W_BLOCKED=BLOCKED", "_W_READERS=BLOCKS"),
        ("proxy/ring/ring.py", "ACTIVE", "SEQUENCE=READ_SEQUENCE", "POSITION=READ_POSITION", "WAITING", "SNAPSHOT"),
    ),
}  # fmt: skip
"""By top folder: (module, names in it). ``a=b``: it is `b` in C; ``Enum.*=A_``: all members, as ``A_MEMBER``."""


def constants(folder: str) -> str:
    """The text of a folder's ``constants.h``. Raises LookupError for a name that its module does not define as a number."""
    lines = [f"/* From the Python modules that define these: setup.py. */\n#ifndef BARNABAS_{folder.upper()}_CONSTANTS_H"]
    lines.append(f"#define BARNABAS_{folder.upper()}_CONSTANTS_H\n")
    for module, *names in SHARED[folder]:
        defined = _numbers(ast.parse((ROOT / module).read_text(encoding="utf-8")))
        for wanted in names:
            for name, value in _named(wanted, defined, module):
                lines.append(f"#define {name} {value}{'ULL' if value > 0x7FFFFFFF else ''} /* {module} */")
    return "\n".join(lines) + "\n\n#endif\n"


def write_constants(folder: str, into: Path) -> Path:
    """Write a folder's header into a directory, unless it is there already. Gives the directory, for the compiler."""
    path, text = into / folder / "constants.h", constants(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
    return path.parent


def _named(wanted: str, defined: dict[str, int], module: str) -> Iterator[tuple[str, int]]:
    name, _, other = wanted.partition("=")
    found = {n: v for n, v in defined.items() if n == name or (name.endswith(".*") and n.startswith(name[:-1]))}
    if not found:
        raise LookupError(f"{module} defines no number {name}")
    for each, value in found.items():
        yield (other + each.rpartition(".")[2] if name.endswith("*") else other or each), value


def _numbers(tree: ast.Module) -> dict[str, int]:
    known: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            _assign(node, known, "")
        elif isinstance(node, ast.ClassDef) and any(isinstance(b, ast.Name) and b.id == "IntEnum" for b in node.bases):
            for each in node.body:
                if isinstance(each, ast.Assign):
                    _assign(each, known, node.name + ".")
    return {name: value for name, value in known.items() if type(value) is int}


def _assign(node: ast.Assign, known: dict[str, Any], prefix: str) -> None:
    try:
        value = eval(compile(ast.Expression(node.value), "", "eval"), {"__builtins__": {"range": range}}, dict(known))
    except Exception:  # no number: of no concern
        return
    for target in node.targets:
        if isinstance(target, ast.Name):
            known[prefix + target.id] = value
        elif isinstance(target, ast.Tuple) and all(isinstance(each, ast.Name) for each in target.elts):
            known.update(zip((prefix + each.id for each in target.elts if isinstance(each, ast.Name)), value))


# -- flags


class Hardened(build_ext):
    """Tries each set of flags on a program of one line; of those that say the same, the first that is taken."""

    def build_extensions(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "try.c")
            source.write_text(PROGRAM)
            taken: list[str] = []
            for flags in COMPILING:
                if flags[0] not in taken and self._compiles(source, flags):
                    taken += flags
            linked = [flag for flags in LINKING if self._links(source, flags) for flag in flags]
        for extension in self.extensions:
            folder = extension.name.split(".")[1]
            extension.include_dirs += [str(ROOT), str(write_constants(folder, Path(self.build_temp)))]
            extension.extra_compile_args += taken
            extension.extra_link_args += linked
        super().build_extensions()

    def _compiles(self, source: Path, flags: tuple[str, ...]) -> bool:
        try:
            self.compiler.compile([str(source)], output_dir=str(source.parent), extra_postargs=["-O2", "-Werror", *flags])
        except Exception:  # whatever a compiler of any kind says: it is done without
            return False
        return True

    def _links(self, source: Path, flags: tuple[str, ...]) -> bool:
        try:
            objects = self.compiler.compile([str(source)], output_dir=str(source.parent))
            library = str(source.with_suffix(".so"))
            self.compiler.link_shared_object(objects, library, extra_postargs=["-Wl,--fatal-warnings", *flags])
        except Exception:  # as above
            return False
        return True


class Modules(build_py):
    """The repository's root is the package, and this file is no part of it."""

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        return [each for each in super().find_package_modules(package, package_dir) if each[:2] != ("barnabas", "setup")]


if __name__ == "__main__":  # tests build the extensions with other flags
    setup(packages=packages(), cmdclass={"build_ext": Hardened, "build_py": Modules})
