"""Keys are pressed thousands of times, and Textual's pilot waits for two fiftieths of a second at least behind each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import textual._wait
import textual.screen


@pytest.fixture(scope="session", autouse=True)
def finer_steps() -> Iterator[None]:
    """The pilot looks more often whether all that a key has set off is done, by the same measure (a twentieth of the time
    that passed was used), and the screen is painted between two of its looks, as it is with Textual's own figures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(textual._wait, "SLEEP_GRANULARITY", 1 / 100)
        patch.setattr(textual._wait, "SLEEP_IDLE", 1 / 100 / 20)
        patch.setattr(textual.screen, "UPDATE_PERIOD", 1 / 120)
        yield
