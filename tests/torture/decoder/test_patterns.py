"""Every regular expression of the product on hostile strings: none takes time that grows with the square of the text.

Where that is so, 16 KiB take seconds or minutes; else about a millisecond. The limit lies far from both.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import time
from collections.abc import Iterator
from pathlib import Path

import barnabas
import pytest

SIZE = 16 << 10
LIMIT_SECONDS = 1.0
UNITS = ["a", "A", "0", " ", "\t", "\n", ".", "-", "_", "/", "\\", '"', "'", "=", ":", "@", ",", ";", "(", "[", "{", "<", "#",
         "\x1b[", "\x00", "é", "a.", "a-", "a:", "a=", "a ", " a", "1.", "::", "a@", "0x", '""', "a,", "a/"]  # fmt: skip


def patterns() -> Iterator[tuple[str, re.Pattern[str] | re.Pattern[bytes]]]:
    """Those that modules hold by a name, or in a table."""
    seen: set[int] = set()
    for module in pkgutil.walk_packages(barnabas.__path__, "barnabas."):
        if module.name == "barnabas.setup":  # the program that builds the package
            continue
        if module.name.endswith("__main__") or ".examples." in module.name:
            continue
        try:
            found = vars(importlib.import_module(module.name))
        except ImportError:  # an extra that is not installed
            continue
        for name, value in list(found.items()):
            inner = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else (value,)
            for each in inner:
                if isinstance(each, re.Pattern) and id(each) not in seen:
                    seen.add(id(each))
                    yield f"{module.name}.{name}", each


def names_searched() -> set[str]:
    """The names of patterns that are looked for anywhere in a text, and not only at its beginning."""
    root = Path(barnabas.__file__).parent
    product = ("decoder", "captures", "plugins", "proxy", "ui")
    sources = "".join(path.read_text() for folder in product for path in (root / folder).rglob("*.py"))
    return set(re.findall(r"\b(\w+)\.(?:search|finditer|findall|sub|subn|split)\(", sources))


def hostile(pattern: re.Pattern[str] | re.Pattern[bytes]) -> Iterator[str]:
    """What it looks for, again and again, and never to its end."""
    text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    words = {word for word in re.findall(r"[A-Za-z]{2,}", text) if len(word) < 40}
    for unit in [*UNITS, *sorted(words), *(f"{word} " for word in sorted(words))]:
        yield (unit * (SIZE // len(unit))) + "\x01!"


@pytest.mark.slow
def test_none_takes_quadratic_time() -> None:
    searched = names_searched()
    slow: list[str] = []
    count = 0
    for name, pattern in patterns():
        count += 1
        for text in hostile(pattern):
            given = text if isinstance(pattern.pattern, str) else text.encode("latin-1", "replace")
            begun = time.process_time()
            pattern.fullmatch(given)  # type: ignore[arg-type]
            pattern.match(given)  # type: ignore[arg-type]
            if name.rpartition(".")[2] in searched:
                pattern.search(given)  # type: ignore[arg-type]
            if (took := time.process_time() - begun) > LIMIT_SECONDS:
                slow.append(f"{name} {pattern.pattern!r}: {took:.1f} s for {text[:12]!r}...")
                break
    assert count > 50
    assert not slow, "\n".join(slow)
