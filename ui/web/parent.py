"""End a page's process when its server has ended, even if that was killed."""

from __future__ import annotations

import os
import threading
import time

EVERY_SECONDS = 1.0


def end_with_parent(server: int) -> None:
    """End this process soon after the process `server`, its parent, has ended."""
    if os.getppid() != server:
        os._exit(1)
    threading.Thread(target=_watch, args=(server,), name="parent", daemon=True).start()


def _watch(server: int) -> None:
    while os.getppid() == server:
        time.sleep(EVERY_SECONDS)
    os._exit(1)
