"""The table of commands: name, module, function, help panel."""

from __future__ import annotations

from typing import Any, NamedTuple

LIVE, DIAGNOSIS, RECORDINGS, FAULTS, PROTOCOL = (
    "Live traffic", "What is wrong", "Recordings", "Break and steer", "The protocol",
)  # fmt: skip
"""The panels of ``barnabas --help``."""


class _Command(NamedTuple):
    """Where a command is: its module, the function in it ("app" for a group), and its panel."""

    module: str
    function: str
    panel: str
    settings: dict[str, Any] | None = None
    """Of its context, for click."""


COMMANDS = {
    "demo": _Command("screen.demo", "demo", LIVE),
    "proxy": _Command("proxy.proxy", "proxy", LIVE),
    "ui": _Command("screen.view", "ui", LIVE),
    "sniff": _Command("proxy.sniff", "sniff", LIVE),
    "feed": _Command("proxy.feed", "feed", LIVE),
    "transparent": _Command("proxy.transparent", "app", LIVE),
    "config": _Command("proxy.config", "app", LIVE),
    "findings": _Command("analysis.findings", "findings", DIAGNOSIS),
    "versions": _Command("analysis.versions", "versions", DIAGNOSIS),
    "compat": _Command("analysis.compat", "compat", DIAGNOSIS),
    "explain": _Command("protocol.explain", "explain", DIAGNOSIS, {"ignore_unknown_options": True}),
    "diff": _Command("analysis.diff", "diff", DIAGNOSIS),
    "crosscheck": _Command("analysis.crosscheck", "crosscheck", DIAGNOSIS),
    "decode": _Command("recordings.decode", "decode", RECORDINGS),
    "import": _Command("recordings.importing", "import_", RECORDINGS),
    "index": _Command("recordings.index", "index", RECORDINGS),
    "export": _Command("recordings.export", "export", RECORDINGS),
    "redact": _Command("recordings.redact", "redact", RECORDINGS),
    "cut": _Command("recordings.cut", "cut", RECORDINGS),
    "merge": _Command("recordings.merge", "merge", RECORDINGS),
    "replay": _Command("recordings.replay", "replay", RECORDINGS),
    "serve": _Command("recordings.serve", "serve", RECORDINGS),
    "pipeline": _Command("fleet.pipeline", "app", RECORDINGS),
    "report": _Command("fleet.report", "report", RECORDINGS),
    "rules": _Command("proxy.rules", "app", FAULTS),
    "plugins": _Command("proxy.plugins", "app", FAULTS),
    "control": _Command("proxy.control", "app", FAULTS),
    "translate": _Command("protocol.translate", "translate", PROTOCOL),
    "filter": _Command("protocol.filter", "app", PROTOCOL),
    "schema": _Command("protocol.schema", "app", PROTOCOL),
    "encode": _Command("protocol.frame", "encode", PROTOCOL),
    "man": _Command("help.man", "man", PROTOCOL),
}
"""Every command by its name, in the order of the help."""
