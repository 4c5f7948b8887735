"""The detectors as a whole: many, with different ids, and all of them in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

from barnabas.decoder.findings import Severity, detectors
from barnabas.decoder.schema import facts

PAGE = Path(__file__).parents[4] / "docs" / "detectors.md"


def test_every_detector_describes_itself() -> None:
    found = detectors()
    assert len(found) >= 50
    assert len({kind.id for kind in found}) == len(found)
    for kind in found:
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", kind.id)
        assert kind.severity in Severity and 20 < len(kind.title) < 160
        assert kind.apis is None or kind.apis <= set(facts.api_keys())


def test_the_page_has_them_all() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| (\w+) \| (.+) \|$", PAGE.read_text(), re.M)
    assert sorted(rows) == sorted((kind.id, str(kind.severity), kind.title) for kind in detectors())
