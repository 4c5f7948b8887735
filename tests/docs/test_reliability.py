"""The page about reliability: each of the twenty goals is there, with tests that exist and with what was seen."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reliability.md").read_text("utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| ")]


def there(name: str) -> bool:
    """A file of tests by its name, a path, or a module below tests."""
    name = name.split()[0]
    if name.startswith("torture."):
        return (ROOT / "tests" / f"{name.replace('.', '/')}.py").is_file()
    if "/" in name:
        return (ROOT / name).exists() or (ROOT / "tests" / name).exists()
    return bool(list((ROOT / "tests").rglob(name)))


def test_every_goal_has_tests_and_a_figure() -> None:
    rows = ROWS[1:]
    assert [row[0] for row in rows if row[0]] == [f"R{number}" for number in range(1, 21)]
    for number, promise, tests, seen in rows:
        named = re.findall(r"`([^`]+)`", tests)
        assert promise and seen and named, number or promise
        assert all(map(there, named)), named
