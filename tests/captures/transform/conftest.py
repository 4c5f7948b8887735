"""What is redacted, and how."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from barnabas.captures.transform.fields import RedactionKind
from barnabas.captures.transform.pseudonyms import Pseudonyms
from barnabas.captures.transform.redact import Redaction
from barnabas.captures.transform.write import Writer
from traffic.planted_names import record_planted

from ..event_words import read_events


@pytest.fixture(scope="session")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording that has everything of `PLANTED` in it, many times."""
    directory = tmp_path_factory.mktemp("planted") / "recording"
    record_planted(directory)
    return directory


Redact = Callable[..., Redaction]


@pytest.fixture(scope="session")
def redact() -> Redact:
    """``redact(path, out, kinds=all, salt=b"salt")``"""

    def run(path: Path, out: Path, kinds: Iterable[RedactionKind] = RedactionKind, salt: bytes = b"salt") -> Redaction:
        redaction = Redaction(Pseudonyms(salt), kinds)
        writer = Writer(out)
        for event in read_events(path):
            for new in redaction.feed(event):
                writer.write(new)
        writer.close()
        assert writer.faults == []
        return redaction

    return run
