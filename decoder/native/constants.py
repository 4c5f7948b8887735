"""The constants that C shares with Python, written as C headers at build time from the Python modules that define them.

Run by setup.py, and by what builds the extensions for tests. Nothing is imported: only assignments of numbers, and the members
of IntEnum classes, are read.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SHARED = {
    "decoder": (),
    "captures": (
        ("decoder/frame.py", "MAX_FRAME"),
        ("captures/packets.py", "MAX_LENGTH", "MAX_PAYLOAD", "FIN", "SYN", "RST", "PSH", "ACK"),
        ("captures/index.py", "UNDECODED", "SURPLUS", "CUT"),
    ),
    "proxy": (
        ("decoder/acks.py", "ACKS_REACH"),
        ("proxy/interception/frame_editor.py", "ENDPOINT_LIMIT"),
        ("proxy/interception/header_prefix.py", "MOST=PREFIX_MOST"),
        ("proxy/relay/correlation.py", "IN_FLIGHT_LIMIT"),
        ("proxy/relay/half_connection.py", "KEPT", "OWED_LIMIT", "TURN"),
        ("proxy/relay/states.py", "HalfConnectionState.*=HALF_"),
        ("proxy/relay/tracking_mode.py", "HEAD_KEPT"),
        ("proxy/ring/ring.py", "CHUNK=RING_CHUNK", "CAREFUL_CHUNK=RING_CAREFUL_CHUNK", "NONE=RING_NONE", "READERS=RING_READERS"),
        ("proxy/ring/ring.py", "HOT", "ASK", "_SLOT=SLOT", "DROP", "BLOCK", "Kind.DATA=RING_DATA"),
        # words of the header, then words of a reader's block
        ("proxy/ring/ring.py", "_W_SEQUENCE=SEQUENCE", "_W_POSITION=POSITION", "_W_BLOCKED=BLOCKED", "_W_READERS=BLOCKS"),
        ("proxy/ring/ring.py", "ACTIVE", "SEQUENCE=READ_SEQUENCE", "POSITION=READ_POSITION", "WAITING", "SNAPSHOT"),
    ),
}  # fmt: skip
"""By top folder: (module, names in it). ``a=b``: it is `b` in C; ``Enum.*=A_``: all members, as ``A_MEMBER``."""


def header(folder: str, root: Path) -> str:
    """The text of a folder's ``constants.h``. Raises LookupError for a name that its module does not define as a number."""
    lines = [f"/* From the Python modules that define these: decoder/native/constants.py. */\n#ifndef BARNABAS_{folder.upper()}_CONSTANTS_H"]
    lines.append(f"#define BARNABAS_{folder.upper()}_CONSTANTS_H\n")
    for module, *names in SHARED[folder]:
        defined = _numbers(ast.parse((root / module).read_text(encoding="utf-8")))
        for wanted in names:
            for name, value in _named(wanted, defined, module):
                lines.append(f"#define {name} {value}{'ULL' if value > 0x7FFFFFFF else ''} /* {module} */")
    return "\n".join(lines) + "\n\n#endif\n"


def write(folder: str, root: Path, into: Path) -> Path:
    """Write a folder's header into a directory, unless it is there already. Gives the directory, for the compiler."""
    path, text = into / folder / "constants.h", header(folder, root)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
    return path.parent


def modules(folder: str) -> list[str]:
    """The modules that a folder's header is made from."""
    return sorted({module for module, *_ in SHARED[folder]})


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
