"""Every command of ``barnabas``: where it is, imported when it is called."""

from __future__ import annotations

from typing import Any, NamedTuple

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
