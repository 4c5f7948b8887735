"""The versions view: for each API and client, the versions that are used and those that brokers offer."""

from __future__ import annotations

from collections.abc import Iterable
from time import perf_counter
from typing import ClassVar

from textual.binding import BindingType
from textual.widget import Widget

from ....captures import Capture
from ....decoder.compat import ClientTracker, IndexedRequest, Limit, MatrixRow, ObservedClient, brokers, matrix
from ....decoder.compat.client_tracker import API_VERSIONS, NEWEST_OLD_FORMAT, PRODUCE
from ....decoder.schema import facts
from ...safe import fit, visible
from ..keys import bindings
from ..model.filter_terms import api_term, quoted
from ..widgets.line_list import LineList, Table
from ..widgets.palette import Cell, Role
from ..widgets.styled import TextPane, TitleLine
from .view import View

_CELL = 18
_ROLES: dict[Limit, Role] = {Limit.UNKNOWN: "muted", Limit.BROKER: "ok", Limit.CLIENT: ""}


class Clients:
    """The clients of a capture and the versions they used, read in slices."""

    def __init__(self, capture: Capture):
        self._capture = capture
        self._watch = ClientTracker()
        self._watch.capture(all(segment.own is not None for segment in capture.segments))
        self.done = 0
        self._known: list[ObservedClient] = []
        self._known_at = -1

    @property
    def pending(self) -> int:
        """Rows that have not been read yet."""
        return self._capture.done - self.done

    def step(self, seconds: float) -> None:
        """Read rows for about so long."""
        until, rows, watch = perf_counter() + seconds, self._capture.rows(), self._watch
        while self.pending and perf_counter() < until:
            for row in rows[self.done : min(self.done + 128, rows.done)]:
                seen = IndexedRequest(
                    row.connection, row.client, row.broker, row.client_id, row.api_key, row.api_version,
                    row.time_ns, row.error, row.state, row.correlation_id,
                )  # fmt: skip
                watch.request(seen)
                if row.api_key == API_VERSIONS:
                    watch.api_versions(seen, self._capture.exchange(row))
                elif row.api_key == PRODUCE and row.api_version <= NEWEST_OLD_FORMAT:
                    watch.produced(seen, self._capture.exchange(row))
                self.done += 1

    def clients(self) -> list[ObservedClient]:
        """The clients so far."""
        if self._known_at != self.done:
            self._known, self._known_at = self._watch.clients(), self.done
        return self._known


class VersionsScreen(View):
    """An API per line, a client per column: the versions used, those offered, and whose limit that is."""

    DEFAULT_CSS = """
    VersionsScreen TextPane { height: 7; padding: 0 1; border-top: solid $border-blurred; }
    """
    BINDINGS: ClassVar[list[BindingType]] = bindings("versions")
    number = 4
    context = "versions"

    def __init__(self) -> None:
        super().__init__()
        self.first = 0
        self.chosen = 0
        self._seen: list[ObservedClient] = []
        self._tables: list[dict[int, MatrixRow]] = []
        self._keys: list[int] = []
        self._known_at = -1

    def body(self) -> Iterable[Widget]:
        self.clients = Clients(self.session.capture)
        self.titles, self.table, self.text = TitleLine(), Table(), TextPane()
        return self.titles, self.table, self.text

    def work_slice(self) -> bool:
        if not self.clients.pending:
            return False
        self.clients.step(0.025)
        self.update_view()
        return self.clients.pending > 0

    def empty_text(self) -> str:
        return "" if len(self.session.capture.rows()) else "No request yet: no client has used a version."

    def state_cells(self) -> list[Cell]:
        cells: list[Cell] = [(f"{len(self._seen)} client{'s' * (len(self._seen) != 1)}", "")]
        if self.clients.pending:
            cells.append((f" {100 * self.clients.done // max(len(self.session.capture.rows()), 1)}%", "waiting"))
        return cells

    def update_rows(self) -> None:
        if self.clients.pending:
            self.barnabas.work()
        if self._known_at != self.clients.done:
            self._known_at = self.clients.done
            self._seen = self.clients.clients()
            self._tables = [{row.api_key: row for row in matrix(client)} for client in self._seen]
            refused = {key for table in self._tables for key, row in table.items() if row.refused}
            self._keys = sorted(
                {key for table in self._tables for key in table}, key=lambda key: (key not in refused, key)
            )
        self._draw()

    def _columns(self) -> range:
        room = max((self.size.width - 26) // (_CELL + 1), 1)
        self.first = max(min(self.first, self.chosen), self.chosen - room + 1, 0)
        return range(self.first, min(self.first + room, len(self._seen)))

    def _draw(self) -> None:
        columns = self._columns()
        names = [visible(self._seen[i].client_id or self._seen[i].software_label or self._seen[i].host) for i in columns]
        left = "<" if columns.start else " "
        right = ">" if columns.stop < len(self._seen) else ""
        self.titles.show(f"  API                    {left}" + "".join(
            fit(("[" + n + "]") if i == self.chosen else n, _CELL) + " " for i, n in zip(columns, names, strict=True)
        ) + right)  # fmt: skip
        self.table.show([
            [(" " + fit(facts.api_name(key), 22) + "  ", "title"), *(c for i in columns for c in self._cell(i, key))]
            for key in self._keys
        ])  # fmt: skip
        self._show_details()

    def _cell(self, client: int, key: int) -> list[Cell]:
        """``v9-v12 of 0-12``, with a mark where it was refused."""
        row = self._tables[client].get(key)
        if row is None:
            return [(" " * (_CELL + 1), "")]
        used = [use.version for use in row.uses]
        text = f"v{min(used)}" if len(used) == 1 else f"v{min(used)}-{max(used)}"
        offered = ",".join(f"{low}-{high}" for low, high in row.offered)
        text += f" of {offered}" if offered else " of ?"
        role = "error" if row.refused else _ROLES[row.limit]
        chosen = client == self.chosen and self._keys.index(key) == self.table.cursor
        return [(fit(("! " if row.refused else "  ") + text, _CELL), "cell" if chosen else role), (" ", "")]

    def _show_details(self) -> None:
        if not self._seen:
            self.text.show([])
            return
        self.chosen = min(self.chosen, len(self._seen) - 1)
        client = self._seen[self.chosen]
        asks = {
            "asks": "negotiates its versions",
            "unanswered": "sends ApiVersions, gets no response",
            "never": "never sends ApiVersions: it uses fixed versions",
            "unknown": "began before the capture",
        }[client.negotiation]
        software = visible(client.software_label) or (client.software.text if client.software else "unknown software")
        lines: list[list[Cell]] = [[
            (visible(client.client_id or "(no client id)"), "title"), (f"  {software}", ""),
            (f"  {visible(client.host)}  {_counted(client)}; {asks}", "muted"),
        ]]  # fmt: skip
        if self.table.cursor < len(self._keys):
            key = self._keys[self.table.cursor]
            row = self._tables[self.chosen].get(key)
            lines.append(self._about_row(key, row))
        for broker in brokers(self._seen):
            guess = f"Kafka {broker.guess}" if broker.guess else "only refused"
            lines.append(
                [(f"broker {visible(broker.address)}  ", "name"), (guess, ""), (", inferred from what it offers", "muted")]
            )
        self.text.show(lines)
        self.about.show([(" of", "key"), (" offered versions  ", "muted"), ("! ", "error"), ("refused  ", "muted"),
                         ("green", "ok"), (" the highest offered  ", "muted"), ("Enter: ", "key"),
                         ("its exchanges", "muted")])  # fmt: skip

    def _about_row(self, key: int, row: MatrixRow | None) -> list[Cell]:
        name = facts.api_name(key)
        if row is None:
            return [(f"{name}: not used by this client", "muted")]
        uses = ", ".join(
            f"v{use.version} ({use.count} request{'s' * (use.count != 1)}{f', {use.refused} REFUSED' if use.refused else ''})"
            for use in row.uses
        )
        limit = {
            Limit.BROKER: "the highest that the broker offers",
            Limit.CLIENT: "the broker offers more",
            Limit.UNKNOWN: "what the broker offers is unknown",
        }[row.limit]
        both = f", v{row.highest} is the highest common version" if row.highest is not None else ""
        return [(f"{name}: ", "title"), (uses, "error" if row.refused else ""), (f"; {limit}{both}", "muted")]

    def on_line_list_moved(self) -> None:
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def action_pan(self, step: int) -> None:
        self.chosen = max(0, min(self.chosen + step, len(self._seen) - 1))
        self._draw()

    def on_line_list_opened(self, event: LineList.Opened) -> None:
        client, key = self._seen[self.chosen], self._keys[event.position]
        who = f"client == {quoted(client.client_id)}" if client.client_id else "not client"
        self.barnabas.show_exchanges(f"{who} and {api_term(key)}")


def _counted(client: ObservedClient) -> str:
    connections, requests = client.connections, client.requests
    return f"{connections} connection{'s' * (connections != 1)}, {requests} request{'s' * (requests != 1)}"
