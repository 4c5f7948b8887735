"""The table of commands: name, module, function, help panel, summary."""

from __future__ import annotations

from typing import Any, NamedTuple

LIVE, DIAGNOSIS, RECORDINGS, FAULTS, PROTOCOL = (
    "Live traffic", "Diagnosis", "Recordings", "Faults and control", "The protocol",
)  # fmt: skip
"""The panels of ``barnabas --help``."""


class _Command(NamedTuple):
    """Where a command is: its module, the function in it ("app" for a group), its panel, and its line there."""

    module: str
    function: str
    panel: str
    summary: str
    settings: dict[str, Any] | None = None
    """Of its context, for click."""


COMMANDS = {
    "demo": _Command("screen.demo", "demo", LIVE, "Run a demo: mock brokers, the proxy and real clients."),
    "proxy": _Command("proxy.proxy", "proxy", LIVE, "Run the proxy between clients and a cluster."),
    "ui": _Command("screen.view", "ui", LIVE, "Browse a capture or a running proxy on the screen."),
    "sniff": _Command("proxy.sniff", "sniff", LIVE, "Record the traffic of a network interface."),
    "feed": _Command("proxy.feed", "feed", LIVE, "Print the live feed of a running proxy."),
    "transparent": _Command("proxy.transparent", "app", LIVE, "Redirect connections to the proxy with nftables."),
    "config": _Command("proxy.config", "app", LIVE, "The config file of the proxy: an example, and its schema."),
    "findings": _Command("analysis.findings", "findings", DIAGNOSIS, "Print the problems in a capture, with remedies."),
    "audit": _Command("analysis.audit", "audit", DIAGNOSIS, "Print known bugs of the clients in a capture."),
    "versions": _Command("analysis.versions", "versions", DIAGNOSIS, "Show which versions clients use and brokers offer."),
    "compat": _Command("analysis.compat", "compat", DIAGNOSIS, "Check whether clients work with another Kafka release."),
    "explain": _Command("protocol.explain", "explain", DIAGNOSIS, "Explain an error, an API, a KIP or a setting.", {"ignore_unknown_options": True}),
    "diff": _Command("analysis.diff", "diff", DIAGNOSIS, "Compare two captures."),
    "crosscheck": _Command("analysis.crosscheck", "crosscheck", DIAGNOSIS, "Compare how Wireshark and Barnabas decode a capture."),
    "decode": _Command("recordings.decode", "decode", RECORDINGS, "Print the exchanges of a capture, or one message."),
    "import": _Command("recordings.importing", "import_", RECORDINGS, "Convert captures of other tools into a recording."),
    "index": _Command("recordings.index", "index", RECORDINGS, "Verify a recording, and rebuild its indexes."),
    "export": _Command("recordings.export", "export", RECORDINGS, "Write a capture as JSON lines, CSV or Parquet."),
    "redact": _Command("recordings.redact", "redact", RECORDINGS, "Replace names and contents, to share a capture."),
    "cut": _Command("recordings.cut", "cut", RECORDINGS, "Copy a part of a capture."),
    "merge": _Command("recordings.merge", "merge", RECORDINGS, "Merge captures by time."),
    "replay": _Command("recordings.replay", "replay", RECORDINGS, "Send recorded requests to a broker again."),
    "serve": _Command("recordings.serve", "serve", RECORDINGS, "Answer clients from a recording."),
    "pipeline": _Command("fleet.pipeline", "app", RECORDINGS, "Turn many captures into Parquet tables."),
    "report": _Command("fleet.report", "report", RECORDINGS, "Report on many captures."),
    "rules": _Command("proxy.rules", "app", FAULTS, "Fault rules: check them, try them, list recipes."),
    "plugins": _Command("proxy.plugins", "app", FAULTS, "Plugins: list the installed ones, check one."),
    "control": _Command("proxy.control", "app", FAULTS, "Inspect and control a running proxy."),
    "translate": _Command("protocol.translate", "translate", PROTOCOL, "Show what --translate converts between two releases."),
    "filter": _Command("protocol.filter", "app", PROTOCOL, "The filter language: its fields; check or try a filter."),
    "schema": _Command("protocol.schema", "app", PROTOCOL, "The protocol's schema: APIs, versions, fields, releases."),
    "encode": _Command("protocol.frame", "encode", PROTOCOL, "Encode a message from JSON."),
    "man": _Command("help.man", "man", PROTOCOL, "Print the manual as a man page."),
}
"""Every command by its name, in the order of the help."""
