"""Findings, the worst first, each with its reason, remedy and exchanges."""

from __future__ import annotations

from fastapi import Request
from nicegui import ui

from ....decoder.findings import Finding, summary
from ...safe import visible
from ...times import moment, period
from ...tui.views.problems import evidence_filter
from ..site import TICK_SECONDS, Site, link, text

MOST = 300


def register(site: Site) -> None:
    """Add the page."""

    @ui.page("/problems")
    def page(request: Request, id: str = "") -> None:
        with site.frame(request, "Problems", needs_rows=False):
            site.work.want("analysis")
            if id:
                link("All problems", site.url("problems")).classes("button self").props("data-key=Escape")
            state = text("", "note", "p")
            holder = ui.element("div")
            shown: list[object] = [None]

            def show() -> None:
                site.work.want("analysis")
                result = site.session.analysis.result
                found = [finding for finding in result.findings if id in ("", finding.id)]
                state.set_text(_state(site, len(found)))
                now = [(finding.id, finding.count, finding.seen) for finding in found]
                if now == shown[0]:
                    return
                shown[0] = now
                holder.clear()
                with holder:
                    for finding in found[:MOST]:
                        _show(site, finding)

            show()
            ui.timer(TICK_SECONDS, show)


def _state(site: Site, count: int) -> str:
    result = site.session.analysis.result
    if result.fault:
        return f"Findings are not available. {visible(result.fault)}"
    reading = f", read {result.progress:.0%}" if site.session.analysis.unread and result.progress < 1 else ""
    if not count and not reading:
        return "Nothing found: no detector reports a problem in this traffic."
    counts = f"{count} finding{'s' * (count != 1)}, {result.high} high, {result.medium} medium{reading}"
    return f"{visible(summary(result.findings, moment))} {counts}".strip()


def _show(site: Site, finding: Finding) -> None:
    with ui.element("section").classes("pane finding"):
        with ui.element("div").classes("bar"):
            text(str(finding.severity), str(finding.severity))
            link(visible(finding.id), site.url("problems", id=finding.id)).classes("title")
            text(f"{finding.count:,} time{'s' * (finding.count != 1)}", "muted")
            if finding.first_ns is not None:
                text(period(finding.first_ns, finding.last_ns), "muted")
            if finding.exchanges:
                link("Exchanges", site.exchanges(evidence_filter(finding))).classes("button")
                link("Ladder", site.url("ladder", filter=evidence_filter(finding))).classes("button")
        for name, words in (("Seen", finding.seen), ("Why", finding.why), ("Do", finding.remedy), ("Explains", ", ".join(finding.effects)), ("Rules", finding.done_by)):
            if words:
                with ui.element("p").classes("note"):
                    text(f"{name}: ", "name")
                    text(visible(str(words)))
