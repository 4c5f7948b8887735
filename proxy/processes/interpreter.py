"""The one way in which Barnabas starts another Python interpreter.

Python puts the current folder at the head of its import path when it runs a module (``-m``). Whoever opens a capture in a stranger's
folder must not run that stranger's ``json.py``, so every child gets ``-P``.
"""

from __future__ import annotations

import sys


def python(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of this package (``ui.demo.cluster``; empty: the command line) with this interpreter."""
    package = __package__.partition(".")[0]
    return [sys.executable, "-P", "-m", f"{package}.{module}" if module else package, *arguments]
