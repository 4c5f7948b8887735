"""Starting and ending the proxy's processes: fresh interpreters, each with one end of a control socket."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import Any


def start_child(module: str, settings: dict[str, Any], fds: Sequence[int]) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Run `barnabas.proxy.<module>` with these settings and descriptors; our end of its control socket."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        ours.send(json.dumps(settings).encode())
        # -P: nothing of the current directory can stand in for a module
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", f"{__package__}.{module}", str(theirs.fileno())],
            pass_fds=[theirs.fileno(), *fds],
            stdin=subprocess.DEVNULL,
            process_group=0,  # Ctrl-C in a terminal reaches the foreground group: this process, not these
        )
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return child, ours


def wait_or_kill(child: subprocess.Popen[bytes], seconds: float) -> None:
    """Give it so long to end."""
    try:
        child.wait(max(seconds, 0.0))
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
