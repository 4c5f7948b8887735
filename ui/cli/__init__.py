"""The ``barnabas`` command. Each command has a module of its own, imported when it is called."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

from .failure import Failure

LIVE, WRONG, RECORDINGS, BREAK, KNOWN = (
    "Live traffic", "What is wrong", "Recordings", "Break and steer", "The protocol",
)  # fmt: skip
"""The panels of ``barnabas --help``."""


class _Command(NamedTuple):
    """Where a command is: its module, the function in it ("app" for a group), and its panel."""

    module: str
    function: str
    panel: str
    settings: dict[str, Any] | None = None


COMMANDS = {
    "demo": _Command("demo", "demo", LIVE),
    "proxy": _Command("proxy", "proxy", LIVE),
    "ui": _Command("view", "ui", LIVE),
    "sniff": _Command("sniff", "sniff", LIVE),
    "feed": _Command("feed", "feed", LIVE),
    "transparent": _Command("transparent", "app", LIVE),
    "config": _Command("config", "app", LIVE),
    "findings": _Command("findings", "findings", WRONG),
    "versions": _Command("versions", "versions", WRONG),
    "compat": _Command("compat", "compat", WRONG),
    "explain": _Command("explain", "explain", WRONG, {"ignore_unknown_options": True}),
    "diff": _Command("diff", "diff", WRONG),
    "crosscheck": _Command("crosscheck", "crosscheck", WRONG),
    "decode": _Command("decode", "decode", RECORDINGS),
    "import": _Command("importing", "import_", RECORDINGS),
    "index": _Command("index", "index", RECORDINGS),
    "export": _Command("export", "export", RECORDINGS),
    "redact": _Command("redact", "redact", RECORDINGS),
    "cut": _Command("cut", "cut", RECORDINGS),
    "merge": _Command("merge", "merge", RECORDINGS),
    "replay": _Command("replay", "replay", RECORDINGS),
    "serve": _Command("serve", "serve", RECORDINGS),
    "pipeline": _Command("pipeline", "app", RECORDINGS),
    "report": _Command("report", "report", RECORDINGS),
    "rules": _Command("rules", "app", BREAK),
    "plugins": _Command("plugins", "app", BREAK),
    "control": _Command("control", "app", BREAK),
    "translate": _Command("translate", "translate", KNOWN),
    "filter": _Command("filter", "app", KNOWN),
    "schema": _Command("schema", "app", KNOWN),
    "encode": _Command("frame", "encode", KNOWN),
    "man": _Command("man", "man", KNOWN),
}
"""Every command by its name, in the order of the help."""


def __getattr__(name: str) -> Any:
    # `app`, with every command, for those who call commands from Python.
    if name == "app":
        from .command_line import make_app

        return make_app()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def main() -> None:
    """Entry point: one clear line and exit status 2 for everything that is the user's to mend."""
    first = sys.argv[1] if len(sys.argv) > 1 else ""
    # One command is a fifth of the imports of all; help, mistakes and the shell's completion need all of them.
    completing = any(name.endswith("_COMPLETE") for name in os.environ)
    wanted = [first] if first in COMMANDS and not completing else [] if first == "--version" else list(COMMANDS)
    gc.disable()  # what is imported stays, and there is much of it
    try:
        if first == "ui" and len(sys.argv) == 3 and not sys.argv[2].startswith("-") and not completing:
            from .looking import look

            look(Path(sys.argv[2]))
            return
        from .command_line import make_app

        made = make_app(wanted)
        gc.enable()
        made()
    except Failure as failure:
        from ..tui.safe import visible_lines

        print("\n".join(visible_lines(f"barnabas: {failure}")), file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        # The reader of a pipe went away (``barnabas decode ... | head``): end quietly, as other filters do.
        sys.stderr.close()
        sys.exit(141)
    except KeyboardInterrupt:
        sys.exit(130)
