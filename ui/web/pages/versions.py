"""The versions that each client uses of each API, those that brokers offer, and what breaks on a chosen release."""

from __future__ import annotations

from fastapi import Request
from nicegui import ui

from ....decoder.compat import ClientReport, MatrixRow, ObservedClient, brokers, matrix, report
from ....decoder.reference import releases
from ....decoder.schema import facts
from ...safe import visible
from ...tui.model.filter_terms import api_term, quoted
from ..site import TICK_SECONDS, Site, link, note, text

MOST_CLIENTS = 40


def register(site: Site) -> None:
    """Add the page."""

    @ui.page("/versions")
    def page(request: Request, against: str = "") -> None:
        with site.frame(request, "Versions"):
            with ui.element("div").classes("bar"):
                text("Broken on Kafka")
                chosen = ui.element("select").classes("line").props("aria-label=Release")
                with chosen:
                    for name in ("", *reversed(releases.releases())):
                        option = text(name or "(no release)", tag="option")
                        option.props["value"] = name
                        if name == against:
                            option.props("selected")
                chosen.on("change", lambda event: site.go(site.url("versions", against=event.args)), js_handler="(e) => emit(e.target.value)")
                state = text("", "muted")
            text("Green: the highest version in use is the highest offered. Yellow: the broker offers more. Red: refused, or broken on the release.", "muted", "p")
            holder = ui.element("div").classes("scroll")
            below = ui.element("div")
            shown: list[int] = [-1]

            def show() -> None:
                site.work.want("clients")
                clients = site.work.clients
                left = f", read {clients.done / max(clients.done + clients.pending, 1):.0%}" if clients.pending else ""
                if clients.done == shown[0]:
                    return
                shown[0] = clients.done
                seen = clients.clients()
                state.set_text(f"{len(seen)} client{'s' * (len(seen) != 1)}{left}")
                holder.clear()
                below.clear()
                try:
                    found = report(seen, against) if against else None
                except KeyError:
                    found = None
                    with below:
                        note(f"There is no release {visible(against)}.")
                verdicts = {id(each.client): each for each in found.clients} if found else {}
                with holder:
                    _table(site, seen[:MOST_CLIENTS], verdicts)
                with below:
                    _about(seen, list(verdicts.values()))

            show()
            ui.timer(TICK_SECONDS, show)


def _table(site: Site, seen: list[ObservedClient], verdicts: dict[int, ClientReport]) -> None:
    tables = [{row.api_key: row for row in matrix(client)} for client in seen]
    refused = {key for table in tables for key, row in table.items() if row.refused}
    keys = sorted({key for table in tables for key in table}, key=lambda key: (key not in refused, key))
    with ui.element("table").classes("sheet versions"):
        with ui.element("tr"):
            text("API", tag="th")
            for client in seen:
                with ui.element("th"):
                    text(visible(client.client_id or "(no id)"))
                    text(visible(client.software_label or client.host), "muted", "div")
                    if (verdict := verdicts.get(id(client))) is not None:
                        text(verdict.verdict.text, {0: "ok", 1: "warning", 2: "error"}[int(verdict.verdict)], "div")
        for key in keys:
            with ui.element("tr"):
                text(facts.api_name(key), "title", "td")
                for client, table in zip(seen, tables, strict=True):
                    row = table.get(key)
                    if row is None:
                        ui.element("td")
                        continue
                    words, kind = _cell(row, verdicts.get(id(client)))
                    who = f"client == {quoted(client.client_id)}" if client.client_id else "not client"
                    with ui.element("td").classes(kind):
                        link(words, site.exchanges(f"{who} and {api_term(key)}"))
                        if row.refused:
                            text(f"{row.refused:,} refused", "error", "div")


def _cell(row: MatrixRow, verdict: ClientReport | None) -> tuple[str, str]:
    """``v9-v12 of 0-12`` and the class of the cell."""
    used = [use.version for use in row.uses]
    words = f"v{min(used)}" if len(used) == 1 else f"v{min(used)}-v{max(used)}"
    offered = ",".join(f"{low}-{high}" for low, high in row.offered)
    words += f" of {offered}" if offered else " of ?"
    broken = [] if verdict is None else [r for r in verdict.reasons if r.use is not None and r.use in row.uses]
    if broken:
        return f"✗ {words}", "broken"
    if row.refused:
        return f"! {words}", "refused"
    return words, {"broker": "used", "client": "behind", "unknown": ""}[row.limit]


def _about(seen: list[ObservedClient], verdicts: list[ClientReport]) -> None:
    for each in verdicts:
        if not (each.reasons or each.remedies):
            continue
        with ui.element("section").classes("pane"):
            text(f"{visible(each.client.client_id or '(no id)')}: {each.verdict.text}", "", "h2")
            text(visible(each.certainty), "muted", "p")
            for reason in each.reasons:
                text(visible(f"{reason.verdict.text}: {reason.text}"), "error" if reason.verdict == 2 else "warning", "p")
            for remedy in each.remedies:
                text(f"→ {visible(remedy)}", "note", "p")
    for broker in brokers(seen):
        guess = f"Kafka {broker.guess}" if broker.guess else "only refused"
        text(f"broker {visible(broker.address)}: {visible(guess)}, inferred from what it offers", "muted", "p")
