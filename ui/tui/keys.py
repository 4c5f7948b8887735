"""All keys of all screens in one table, with the texts of the help, the prompt and the key bar.

Widgets take their bindings from here (`bindings`), so that a settings file can give any action other keys (`keymap`). Two
actions with the same key at the same time are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from textual.binding import Binding, BindingType

from ...errors import BarnabasError
from .views import PLACES

Words = tuple[tuple[str, str], ...]


class Key(NamedTuple):
    """One action. `id`: ``context.name``; `keys`: Textual's names, with commas; `short`: the word in the key bar."""

    id: str
    keys: str
    action: str
    words: str
    short: str = ""
    priority: bool = False

    @property
    def context(self) -> str:
        """The screen or widget that has the key."""
        return self.id.partition(".")[0]


KEYS: tuple[Key, ...] = (
    Key("app.view1", "1", "view(1)", "exchanges: requests and responses in pairs"),
    Key("app.view2", "2", "view(2)", "connections and clients"),
    Key("app.view3", "3", "view(3)", "consumer groups, with a timeline for each member"),
    Key("app.view4", "4", "view(4)", "versions: what clients use and brokers offer"),
    Key("app.view5", "5", "view(5)", "problems, the worst first"),
    Key("app.view6", "6", "view(6)", "latency: heat map, percentiles, histogram, rates over time"),
    Key("app.view7", "7", "view(7)", "rules: faults and their hits"),
    Key("app.view8", "8", "view(8)", "log: messages of the proxy and of this screen"),
    Key("app.view9", "9", "view(9)", "held: frames that wait for a decision"),
    Key("app.intercept", "i", "intercept", "intercept: hold what a filter selects (live, with --allow-edit)"),
    Key("app.palette", "ctrl+p", "palette", "everything that can be done here, by name", "palette"),
    Key("app.prompt", "colon", "prompt", "a command, such as :filter err or :theme light"),
    Key("app.help", "question_mark", "help", "the keys of this screen", "help"),
    Key("app.quit", "Q,ctrl+q", "quit", "quit", "quit"),
    Key("app.stop", "ctrl+c", "quit", "quit", priority=True),
    Key("list.up", "up,k", "move(-1)", "one row up"),
    Key("list.down", "down,j", "move(1)", "one row down"),
    Key("list.page_up", "pageup,ctrl+b", "page(-1)", "one page up"),
    Key("list.page_down", "pagedown,ctrl+f", "page(1)", "one page down"),
    Key("list.first", "g,home", "first", "first row"),
    Key("list.last", "G,end", "last", "last row"),
    Key("list.open", "enter", "open", "open what is under the cursor", "open"),
    Key("view.leave", "q", "leave", "back to the exchanges, and from there quit (a live view asks for Q)"),
    Key("view.pane", "tab", "pane", "next pane"),
    Key("exchanges.filter", "slash", "filter", "filter: Enter keeps it, Tab completes, Up and Down recall earlier ones", "filter", True),
    Key("exchanges.clear", "escape", "clear", "show all rows again, step by step"),
    Key("exchanges.follow", "F", "follow", "follow: stay on the newest row", "follow"),
    Key("exchanges.pause", "space", "pause", "pause: show nothing new until pressed again"),
    Key("exchanges.errors", "E", "errors", "errors only: error codes, undecoded frames, responses without a request", "errors"),
    Key("exchanges.cell_left", "left,h", "cell(-1)", "the column to the left"),
    Key("exchanges.cell_right", "right,l", "cell(1)", "the column to the right"),
    Key("exchanges.only", "equals_sign", "narrow(False)", "only rows with the value under the cursor", "only"),
    Key("exchanges.exclude", "exclamation_mark", "narrow(True)", "hide rows with the value under the cursor", "not"),
    Key("exchanges.order", "o", "order", "sort by the column under the cursor; again: reverse; again: by arrival", "sort"),
    Key("exchanges.columns", "c", "columns", "choose columns"),
    Key("exchanges.mark", "m", "mark", "mark the row, or remove the mark"),
    Key("exchanges.comment", "semicolon", "comment", "a comment on the row, saved next to the capture"),
    Key("exchanges.next_mark", "apostrophe", "next_mark", "the next marked row"),
    Key("exchanges.highlight", "H", "highlight", "highlight rows by a filter without hiding others"),
    Key("exchanges.stream", "s", "stream", "only exchanges of this connection", "conn"),
    Key("exchanges.dialogue", "S", "dialogue", "this connection as a dialogue: both directions in time, with the pauses"),
    Key("exchanges.compare", "d", "compare", "compare: d on one exchange, d on another; twice: with the previous one of its API"),
    Key("exchanges.resend", "R", "resend", "send the request again, edited if you like (live, with --allow-edit)"),
    Key("exchanges.export", "x", "export", "export: a program, a pytest case, JSON, bytes, a capture", "export"),
    Key("exchanges.copy", "y", "copy", "copy the value under the cursor, or the line (OSC 52)", "copy"),
    Key("exchanges.copy_as", "Y", "copy_as", "copy, choosing what: the value, JSON, bytes, a filter (OSC 52)"),
    Key("exchanges.next", "n", "next(1)", "the next highlighted row, or the next error"),
    Key("exchanges.previous", "N", "next(-1)", "the previous highlighted row, or the previous error"),
    Key("connections.dialogue", "S", "dialogue", "the connection as a dialogue", "dialogue"),
    Key("connections.group", "v", "group", "one line per connection, or one per client", "clients"),
    Key("groups.zoom_in", "plus", "zoom(1)", "a shorter time range", "zoom"),
    Key("groups.zoom_out", "minus", "zoom(-1)", "a longer time range"),
    Key("groups.earlier", "left,h", "pan(-1)", "earlier"),
    Key("groups.later", "right,l", "pan(1)", "later"),
    Key("versions.left", "left,h", "pan(-1)", "the client to the left"),
    Key("versions.right", "right,l", "pan(1)", "the client to the right"),
    Key("problems.evidence", "f", "evidence", "filter the list to its exchanges", "filter"),
    Key("latency.left", "left,h", "brush(-1)", "move the marked time range to the left"),
    Key("latency.right", "right,l", "brush(1)", "move the marked time range to the right", "time"),
    Key("latency.wider", "plus", "widen(1)", "a wider time range", "wider"),
    Key("latency.narrower", "minus", "widen(-1)", "a narrower time range"),
    Key("latency.graph", "v", "graph", "the graph: rate, heat map of latencies, p99, errors", "graph"),
    Key("latency.none", "escape", "unbrush", "no time range"),
    Key("rules.add", "a", "add", "add a rule", "add"),
    Key("rules.recipe", "p", "recipe", "add a recipe: the rules of a common failure", "recipe"),
    Key("rules.edit", "e", "edit", "edit the rule under the cursor", "edit"),
    Key("rules.toggle", "space", "switch", "enable or disable the rule", "on/off"),
    Key("rules.remove", "d", "remove", "remove the rule (asks first)", "remove"),
    Key("rules.hits", "f", "hits", "filter the list to exchanges that rules have changed", "hits"),
    Key("held.resume", "a", "resume", "release the frame, with its changes", "resume"),
    Key("held.resume_all", "A", "resume_all", "release all frames"),
    Key("held.editor", "e", "editor", "edit the message as YAML in $EDITOR", "edit"),
    Key("held.bytes", "b", "bytes", "bytes: the frame as hexadecimal, linked with the fields both ways"),
    Key("held.undo", "u", "undo", "undo the changes to the frame"),
    Key("held.fail", "f", "fail", "answer with an error instead", "error"),
    Key("held.drop", "d", "drop", "drop the frame silently", "drop"),
    Key("held.kill", "X", "kill", "end the connection with a reset", "kill"),
    Key("held.more_time", "t", "more_time", "hold it two minutes longer", "time"),
    Key("held.release", "I", "release", "turn holding off (asks first)"),
    Key("held.to_list", "escape", "to_list", "go back from the fields to the queue"),
    Key("resend.send", "R,a", "send", "send it", "send"),
    Key("resend.editor", "e", "editor", "edit the request as YAML in $EDITOR", "edit"),
    Key("resend.undo", "u", "undo", "undo the changes"),
    Key("resend.back", "escape,q", "dismiss", "go back without sending", "back"),
    Key("dialogue.filter", "s,f", "filter", "only exchanges of this connection", "conn"),
    Key("dialogue.error", "E", "error", "the next error code", "error"),
    Key("dialogue.back", "escape,q", "dismiss", "back", "back"),
    Key("value.copy", "y", "copy", "copy the value under the cursor, all of it (OSC 52)", "copy"),
    Key("value.export", "x", "export", "export the value to a file", "export"),
    Key("value.back", "escape,q", "dismiss", "back", "back"),
    Key("compare.all", "v", "all", "all fields, or only those that differ", "all"),
    Key("compare.next", "n", "next(1)", "the next difference", "next"),
    Key("compare.previous", "N", "next(-1)", "the previous difference"),
    Key("compare.swap", "x", "swap", "swap left and right"),
    Key("compare.back", "escape,q", "dismiss", "back", "back"),
    Key("detail.pane", "tab", "pane(1)", "next pane: request, response, bytes", "pane", priority=True),
    Key("detail.pane_back", "shift+tab", "pane(-1)", "previous pane", priority=True),
    Key("detail.bytes", "b", "bytes", "bytes: the frame as hexadecimal, linked with the fields both ways", "bytes"),
    Key("detail.values", "v", "values", "show or hide keys, values and headers of records", "values"),
    Key("detail.why", "w", "why", "what the error and the API mean, and what to do", "why"),
    Key("detail.related", "r", "related", "related exchanges: retries, the same connection, the same member", "related"),
    Key("detail.previous", "left_square_bracket", "step(-1)", "the previous exchange"),
    Key("detail.next", "right_square_bracket", "step(1)", "the next exchange", "next"),
    Key("detail.error", "E", "next_error", "the next error code in the response", "error"),
    Key("detail.only", "equals_sign", "only(1)", "only exchanges with the value under the cursor"),
    Key("detail.exclude", "exclamation_mark", "only(0)", "hide exchanges with the value under the cursor"),
    Key("detail.stream", "s", "stream", "only exchanges of its connection"),
    Key("detail.dialogue", "S", "dialogue", "its connection as a dialogue: both directions in time, with the pauses"),
    Key("detail.compare", "d", "compare", "compare with the one selected with d, or with the previous one of its API"),
    Key("detail.resend", "R", "resend", "send the request again, edited if you like (live, with --allow-edit)"),
    Key("detail.export", "x", "export", "export: a program, a pytest case, JSON, bytes, a capture", "export"),
    Key("detail.find", "slash", "find", "find text in names and values of fields"),
    Key("detail.next_match", "n", "match(1)", "the next field found"),
    Key("detail.previous_match", "N", "match(-1)", "the previous field found"),
    Key("detail.copy", "y", "copy", "copy the value under the cursor (OSC 52)"),
    Key("detail.copy_as", "Y", "copy_as", "copy, choosing what: the value, its path, a filter, JSON, bytes (OSC 52)"),
    Key("detail.back", "escape,q", "back", "back", "back"),
    Key("tree.up", "up,k", "move(-1)", "one field up"),
    Key("tree.down", "down,j", "move(1)", "one field down"),
    Key("tree.page_up", "pageup,ctrl+b", "page(-1)", "one page up"),
    Key("tree.page_down", "pagedown,ctrl+f", "page(1)", "one page down"),
    Key("tree.first", "g,home", "ends(0)", "first field"),
    Key("tree.last", "G,end", "ends(-1)", "last field"),
    Key("tree.fold_or_unfold", "enter,space", "fold_or_unfold", "fold or unfold the field; show all of a record's key or value", "fold"),
    Key("tree.fold", "left,h", "fold", "fold, or go to the parent field"),
    Key("tree.unfold", "right,l", "unfold", "unfold, or go to the first field inside"),
    Key("hex.up", "up,k", "line(-1)", "one line up"),
    Key("hex.down", "down,j", "line(1)", "one line down"),
    Key("hex.left", "left,h", "byte(-1)", "one byte back"),
    Key("hex.right", "right,l", "byte(1)", "one byte forward; shows the field that contains it"),
    Key("hex.page_up", "pageup,ctrl+b", "page(-1)", "one page up"),
    Key("hex.page_down", "pagedown,ctrl+f", "page(1)", "one page down"),
    Key("hex.first", "g,home", "end(0)", "first byte"),
    Key("hex.last", "G,end", "end(-1)", "last byte"),
    Key("hex.field", "enter", "field", "go to the field of this byte"),
)  # fmt: skip

SCOPES: tuple[tuple[str, ...], ...] = (
    *(("app", "view", "list", place.module) for place in PLACES),
    ("app", "view", "held", "tree"),
    ("app", "view", "held", "hex"),
    ("app", "tree", "resend"),
    ("app", "list", "dialogue"),
    ("app", "list", "compare"),
    ("app", "list", "value"),
    ("app", "detail", "tree"),
    ("app", "detail", "hex"),
)  # fmt: skip
"""Contexts whose keys are active at the same time."""
_SHOWN = {
    "slash": "/", "colon": ":", "question_mark": "?", "equals_sign": "=", "exclamation_mark": "!", "plus": "+",
    "minus": "-", "left_square_bracket": "[", "right_square_bracket": "]", "semicolon": ";", "apostrophe": "'",
    "escape": "Esc", "enter": "Enter", "space": "Space", "tab": "Tab", "pageup": "PgUp", "pagedown": "PgDn",
    "home": "Home", "end": "End",
}  # fmt: skip
_WRITTEN = {shown: name for name, shown in _SHOWN.items() if len(shown) == 1}


class KeyConflict(BarnabasError, ValueError):
    """Keys that cannot be used. The text says what to change."""


def bindings(context: str) -> list[BindingType]:
    """The bindings of a context, for a class's ``BINDINGS``."""
    return [
        Binding(key.keys, key.action, key.words, show=False, priority=key.priority, id=key.id)
        for key in KEYS
        if key.context == context
    ]


def keymap(given: Mapping[str, str]) -> dict[str, str]:
    """The user's keys by action as Textual's keymap. Raises `KeyConflict`.

    Keys may be written as they are printed (``/``) or by their names (``slash``), several with spaces between.
    """
    known = {key.id: key.keys for key in KEYS}
    for name in given:
        if name not in known:
            raise KeyConflict(f"there is no action {name!r}; barnabas ui --list-keys lists them")
    changed = {name: ",".join(_WRITTEN.get(key, key) for key in text.split()) for name, text in given.items()}
    for name, keys in changed.items():
        if not keys:
            raise KeyConflict(f"{name} has no key: give it one, or omit it")
    now = known | changed
    for scope in SCOPES:
        taken: dict[str, str] = {}
        for name, keys in now.items():
            if name.partition(".")[0] not in scope:
                continue
            for key in keys.split(","):
                if key in taken:
                    raise KeyConflict(
                        f"{shown(key)} is the key of both {taken[key]} and {name}: give one of them another key"
                    )
                taken[key] = name
    return changed


def shown(keys: str) -> str:
    """Keys as they are printed: ``up k`` for ``up,k``."""
    return " ".join(_SHOWN.get(key, key.replace("ctrl+", "^").replace("shift+", "shift-")) for key in keys.split(","))


def help_words(contexts: tuple[str, ...], changed: Mapping[str, str]) -> Words:
    """(keys, what they do) of some contexts, with the user's keys."""
    rows = [(key, changed.get(key.id, key.keys)) for key in KEYS if key.context in contexts]
    order = {context: i for i, context in enumerate(contexts)}
    rows.sort(key=lambda row: order[row[0].context])
    return tuple((shown(keys), key.words) for key, keys in rows)


def bar_words(contexts: tuple[str, ...], changed: Mapping[str, str]) -> Words:
    """(key, word) for the key bar, in the order of `contexts`."""
    return tuple(
        (shown(changed.get(key.id, key.keys).split(",")[0]), key.short)
        for context in contexts
        for key in KEYS
        if key.context == context and key.short
    )
