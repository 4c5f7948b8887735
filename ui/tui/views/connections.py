"""The connections view: clients and brokers, requests, errors and bytes, and how each connection ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from textual.binding import BindingType
from textual.widget import Widget

from ....decoder.findings.engine.traffic import ClientConnection
from ...safe import fit, visible
from ...times import clock
from ..exchange.actions import show_conversation
from ..keys import bindings
from ..model.columns import duration, size
from ..model.filter_terms import quoted
from ..model.rows import row_finder
from ..model.statistics import CaptureStatistics, ConnectionCount
from ..widgets.line_list import LineList, Table
from ..widgets.palette import Cell, Role
from ..widgets.styled import TitleLine
from .view import View

_MOST = 2000


class ConnectionsScreen(View):
    """One line per connection, or per client (client id, software and host)."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("connections")
    number = 2
    context = "connections"
    needs_statistics = True
    needs_analysis = True

    def __init__(self) -> None:
        super().__init__()
        self.by_client = False
        self._filters: list[str] = []

    def body(self) -> Iterable[Widget]:
        self.titles, self.table = TitleLine(), Table()
        return self.titles, self.table

    def empty_text(self) -> str:
        return "" if len(self.session.capture.rows()) else "No connection has carried a request yet."

    def state_cells(self) -> list[Cell]:
        statistics = self.session.statistics
        return [(f"{len(statistics.connections):,} connection{'s' * (len(statistics.connections) != 1)}", ""), *statistics.progress_cells()]

    def update_rows(self) -> None:
        if self.by_client:
            self._clients()
        else:
            self._connections()
        self._about()

    def _connections(self) -> None:
        width = self.app.size.width
        name, address, broker = (18, 22, 21) if width >= 140 else (16, 0, 16) if width >= 100 else (12, 0, 6)
        self.titles.show(
            f"  Conn {'Client':<{name}} {fit('Address', address)}{' ' * bool(address)}{fit('Broker', broker)} "
            "Requests Errors  Sent Recv  Slowest  Opened    Ended"
        )
        links = self.session.analysis.result.connections
        found = sorted(self.session.statistics.connections.items(), key=lambda item: item[1].first_ns)[-_MOST:]
        rows: list[list[Cell]] = []
        self._filters = []
        for (recording, _), each in found:
            link = links.get(each.number) if recording == 0 else None
            ended: Cell = "open", "ok"
            if link is not None and link.closed_ns is not None:
                role: Role = "error" if link.how == "rst" else "muted"
                ended = f"{link.how or 'unknown'}{f' by {link.by}' if link.by else ''}", role
            elif link is None:
                ended = "", "muted"
            rows.append([
                (f"{each.number:>6} ", "muted"),
                (fit(visible(each.client_id or "(no id)"), name) + " ", "title" if each.client_id else "muted"),
                (fit(visible(each.client), address) + " " if address else "", "muted"),
                (fit(visible(each.broker if broker > 6 else f":{each.broker.rpartition(':')[2]}"), broker) + " ", ""),
                *_counts(each),
                (f" {clock(each.first_ns, 0)}  ", "muted"),
                (visible(ended[0]), ended[1]),
            ])  # fmt: skip
            self._filters.append(f"conn == {each.number}")
        self.table.show(rows)

    def _clients(self) -> None:
        width = self.app.size.width
        name, software_width, where = (18, 40, 17) if width >= 130 else (16, 25, 11) if width >= 100 else (12, 16, 0)
        self.titles.show(
            f"  Conns {'Client':<{name}} {'Software':<{software_width}} {fit('Host', where)}{' ' * bool(where)}"
            "Requests Errors  Sent Recv  Slowest  Brokers"
        )
        groups = by_client(self.session.statistics, self.session.analysis.result.connections)
        rows: list[list[Cell]] = []
        self._filters = []
        for (client_id, software, host), of in sorted(groups.items())[:_MOST]:
            total = total_of(of)
            rows.append([
                (f"{len(of):>7} ", "muted"),
                (fit(visible(client_id or "(no id)"), name) + " ", "title" if client_id else "muted"),
                (fit(visible(software or "unknown"), software_width) + " ", "" if software else "muted"),
                (fit(visible(host), where) + " " if where else "", "muted"),
                *_counts(total),
                (f"  {len({each.broker for each in of})}", ""),
            ])  # fmt: skip
            self._filters.append(f"client == {quoted(client_id)}" if client_id else "not client")
        self.table.show(rows)

    def _about(self) -> None:
        at = self.table.cursor
        if at < len(self._filters):
            self.about.show([(" Enter: ", "key"), (f"exchanges with {visible(self._filters[at])}", "muted")])

    def on_line_list_moved(self) -> None:
        self._about()

    def on_line_list_opened(self, event: LineList.Opened) -> None:
        self.barnabas.show_exchanges(self._filters[event.position])

    def action_dialogue(self) -> None:
        text = self._filters[self.table.cursor] if self.table.cursor < len(self._filters) else ""
        if not text.startswith("conn == "):
            self.notify("Show one line per connection first (c): a client may have several.", timeout=3)
            return
        capture = self.session.capture
        first = next(iter(row_finder(capture, text)(0, len(capture.rows()))), None)
        if first is not None:
            show_conversation(self, capture.rows()[first])

    def action_group(self) -> None:
        self.by_client = not self.by_client
        self.table.cursor = 0
        self.update_rows()


def by_client(
    statistics: CaptureStatistics, links: Mapping[int, ClientConnection]
) -> dict[tuple[str, str, str], list[ConnectionCount]]:
    """The connections of each client: by client id, software and host, each "" where it is unknown."""
    groups: dict[tuple[str, str, str], list[ConnectionCount]] = {}
    for (recording, _), each in statistics.connections.items():
        link = links.get(each.number) if recording == 0 else None
        key = each.client_id or "", link.software if link else "", each.client.rpartition(":")[0]
        groups.setdefault(key, []).append(each)
    for key in [k for k in groups if not k[1]]:
        same = [k for k in groups if k[0] == key[0] and k[2] == key[2] and k[1]]
        if len(same) == 1:  # a connection on which the client did not send its software's name
            groups[same[0]] += groups.pop(key)
    return groups


def total_of(connections: Sequence[ConnectionCount]) -> ConnectionCount:
    """The counts of several connections together."""
    total = ConnectionCount(0, "", "", connections[0].first_ns)
    for each in connections:
        total.requests += each.requests
        total.errors += each.errors
        total.sent += each.sent
        total.received += each.received
        total.slowest_ns = max(total.slowest_ns, each.slowest_ns)
    return total


def _counts(each: ConnectionCount) -> list[Cell]:
    return [
        (f"{each.requests:>8,} ", ""),
        (f"{each.errors or '-':>6} ", "error" if each.errors else "muted"),
        (f"{size(each.sent):>5}", ""),
        (f"{size(each.received):>5}  ", ""),
        (f"{duration(each.slowest_ns):>7} ", ""),
    ]
