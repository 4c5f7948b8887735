"""Consumer groups: the state of each member over time, its assignment, and the rebalances with their causes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from typing import Any, NamedTuple

from fastapi import Request
from nicegui import ui
from nicegui.events import EChartPointClickEventArguments

from ....decoder.findings.models.group import Assignment, Group, Member, Step
from ....decoder.schema import facts
from ...safe import visible
from ...times import clock, clock_ms
from ...tui.model.columns import duration
from ...tui.model.filter_terms import quoted
from ..charts import AXIS, BLUE, GREEN, GREY, LEGEND, ORANGE, RED, TOOLTIP, VIOLET, Options, times_axis, zoom
from ..site import TICK_SECONDS, Site, grid, link, note, text

_COLUMNS = (
    {"field": "group", "headerName": "Group", "flex": 1, "minWidth": 160},
    {"field": "state", "headerName": "State", "width": 215},
    {"field": "generation", "headerName": "Generation", "width": 110, "type": "rightAligned"},
    {"field": "members", "headerName": "Members", "width": 95, "type": "rightAligned"},
    {"field": "rebalances", "headerName": "Rebalances", "width": 110, "type": "rightAligned"},
    {"field": "protocol", "headerName": "Protocol", "width": 110},
    {"field": "assignor", "headerName": "Assignor", "width": 200},
)
COLOURS = {"joining": BLUE, "joined": VIOLET, "syncing": ORANGE, "stable": GREEN, "revoking": RED}
"""Of a member's states in the diagram. Revoking: it was told of the rebalance and has not joined again."""
_AFTER = {
    Step.JOIN: "joining", Step.JOINED: "joined", Step.SYNC: "syncing", Step.SYNCED: "stable", Step.HEARTBEAT: "stable", Step.COMMIT: "stable",
    Step.REBALANCE: "revoking",
}  # fmt: skip
_ENDS = {Step.LEAVE: "left", Step.CLOSED: "its connection ended", Step.DROPPED: "dropped"}
MOST_REBALANCES = 50
MOST_PARTITIONS = 60
"""Partitions of one diagram: those that changed hands the most often."""
_MEMBER_COLOURS = (BLUE, ORANGE, GREEN, VIOLET, RED, "#b0a020", "#3fb5b5", "#d06fa8", "#8d6e4f", "#6f7fd0")


def register(site: Site) -> None:
    """Add the pages."""

    @ui.page("/groups")
    def page(request: Request) -> None:
        with site.frame(request, "Groups"):
            site.work.want("analysis")
            state = text("", "note", "p")
            table = grid(_COLUMNS, [], first=("group", "members", "rebalances"))

            def show() -> None:
                site.work.want("analysis")
                state.set_text(_state(site))
                table.set_visibility(bool(_groups(site)))
                table.run_grid_method("setGridOption", "rowData", [_row(site, group) for group in _groups(site)])

            show()
            ui.timer(0.1, show, once=True)
            ui.timer(TICK_SECONDS, show)

    @ui.page("/groups/{group:path}")
    def one(request: Request, group: str) -> None:
        with site.frame(request, "Groups", title=visible(group)):
            site.work.want("analysis")
            _group_page(site, group)


def _groups(site: Site) -> list[Group]:
    return sorted(site.session.analysis.result.groups.all(), key=lambda g: (-len(g.rebalances), g.id))


def _state(site: Site) -> str:
    result = site.session.analysis.result
    count = len(result.groups.all())
    if result.fault:
        return f"Groups are not available. {visible(result.fault)}"
    reading = f", read {result.progress:.0%}" if site.session.analysis.unread and result.progress < 1 else ""
    if not count and not reading:
        return "No consumer group in this traffic: no client has sent JoinGroup, SyncGroup, Heartbeat or a group heartbeat."
    return f"{count} group{'s' * (count != 1)}{reading}"


def _row(site: Site, group: Group) -> dict[str, Any]:
    now, waiting = site.session.analysis.result.traffic.now_ns, group.rebalance
    since = f" {duration(now - waiting.began_ns)}" if waiting is not None else ""
    return {
        "id": visible(group.id), "href": site.url(f"groups/{visible(group.id)}"), "group": visible(group.id), "state": f"{group.state}{since}",
        "state_role": "ok" if group.state == "Stable" else "waiting" if group.state == "Empty" else "error", "generation": group.generation,
        "members": len(group.live), "rebalances": len(group.rebalances), "protocol": visible(group.protocol or "?"),
        "assignor": visible(group.assignor),
    }  # fmt: skip


class MemberSpan(NamedTuple):
    """A state of a member, from when to when."""

    state: str
    start_ns: int
    end_ns: int


def spans(member: Member, now_ns: int) -> list[MemberSpan]:
    """The states of a member over time."""
    found: list[MemberSpan] = []
    moments = list(member.timeline)
    for at, moment in enumerate(moments):
        if moment.step in _ENDS:
            continue
        state = _AFTER.get(moment.step) or (found[-1].state if found else "joining")
        end = moments[at + 1].time_ns if at + 1 < len(moments) else now_ns if member.live else moment.time_ns
        if found and found[-1].state == state and found[-1].end_ns == moment.time_ns:
            found[-1] = found[-1]._replace(end_ns=end)
        else:
            found.append(MemberSpan(state, moment.time_ns, end))
    return found


def gantt(group: Group, now_ns: int) -> Options:
    """The diagram of a group's members, as ECharts has it. Times are milliseconds since the epoch."""
    members = sorted(group.members.values(), key=lambda m: m.first_ns)
    names = [f"{_name(member)} {at + 1}" for at, member in enumerate(members)]
    bars: dict[str, list[Options]] = {state: [] for state in COLOURS}
    points: dict[str, list[Options]] = {"error": [], "end": []}
    for at, member in enumerate(members):
        for span in spans(member, now_ns):
            start, end = _bar(span.start_ns, span.end_ns)
            words = f"{names[at]}\n{span.state} {duration(span.end_ns - span.start_ns)}, from {clock(span.start_ns)}"
            bars[span.state].append({"coords": [[start, at], [end, at]], "value": words, "connection": member.conn.number})
        for moment in member.timeline:
            where = [_ms(moment.time_ns), at]
            if moment.step is Step.ERROR:
                name = f"{facts.error_name(moment.code)} at {clock(moment.time_ns)}"
                points["error"].append({"value": where, "name": f"{names[at]}\n{name}", "connection": member.conn.number})
            elif moment.step in _ENDS:
                name = f"{_ENDS[moment.step]} at {clock(moment.time_ns)}"
                points["end"].append({"value": where, "name": f"{names[at]}\n{name}", "connection": member.conn.number})
    width = max(4, min(18, 360 // max(len(members), 1)))
    series: list[Options] = [
        {
            "name": state, "type": "lines", "coordinateSystem": "cartesian2d", "data": data, "color": COLOURS[state], "clip": True,
            "lineStyle": {"width": width, "opacity": 0.9, "color": COLOURS[state]}, "tooltip": {"formatter": "{c}"},
        }
        for state, data in bars.items()
    ]  # fmt: skip
    for name, color, symbol in (("error", RED, "diamond"), ("end", GREY, "rect")):
        series.append({
            "name": name, "type": "scatter", "data": points[name], "color": color, "symbol": symbol, "symbolSize": [8, width + 6] if name == "end" else 12,
            "z": 5, "tooltip": {"formatter": "{b}"}, "itemStyle": {"opacity": 1, "borderColor": "#fff", "borderWidth": 1},
        })  # fmt: skip
    first = min((m.first_ns for m in members), default=now_ns)
    return _over_time(names, series, first, now_ns)


def _over_time(names: list[str], series: list[Options], first_ns: int, now_ns: int) -> Options:
    """Bars over time, a line for each name, as ECharts has it. Its zone is UTC, so it gets what the clock shows."""
    start, end = _bar(first_ns, now_ns)
    width = 126
    return {
        "animation": False, "tooltip": TOOLTIP, "legend": LEGEND, "grid": {"left": width + 20, "right": 36, "top": 30, "bottom": 66},
        "xAxis": times_axis() | {"type": "time", "min": start, "max": end, "axisLabel": AXIS["axisLabel"] | {"hideOverlap": True}},
        "yAxis": AXIS | {"type": "category", "data": names, "inverse": True, "splitLine": {"show": True, "lineStyle": {"color": GREY, "opacity": 0.2}},
                         "axisLabel": AXIS["axisLabel"] | {"width": width, "overflow": "truncate", "interval": 0}},
        "useUTC": True, "dataZoom": zoom("x", "none"), "series": series,
    }  # fmt: skip


def _ms(time_ns: int) -> float:
    try:
        return clock_ms(time_ns)
    except ValueError:  # a time out of range
        return time_ns / 1e6


def _bar(start_ns: int, end_ns: int) -> tuple[float, float]:
    """Where a bar starts and ends: it is at least a millisecond long."""
    start = _ms(start_ns)
    return start, max(_ms(end_ns), start + 1)


class Owned(NamedTuple):
    """A partition that a member was assigned, from when to when."""

    topic: str
    partition: int
    member: Member
    start_ns: int
    end_ns: int


def owned(group: Group, now_ns: int) -> list[Owned]:
    """Who was assigned which partitions when: until it was given others, left, was dropped, or its connection ended."""
    found: list[Owned] = []
    for member in group.members.values():
        open_at: dict[tuple[str, int], int] = {}

        def end(at_ns: int, still: Container[tuple[str, int]] = (), member: Member = member, since: dict[tuple[str, int], int] = open_at) -> None:
            for each in [each for each in since if each not in still]:
                found.append(Owned(*each, member, since.pop(each), at_ns))

        left = [moment.time_ns for moment in member.timeline if moment.step in (Step.LEAVE, Step.DROPPED)]
        ends = [*left, *(each for each in (member.gone_ns, member.closed_ns) if each)]
        changes: list[tuple[int, Assignment | None]] = [*((each, None) for each in ends), *member.assigned]
        for time_ns, given in sorted(changes, key=lambda change: change[0]):
            now = {(topic, number) for topic, numbers in (given or {}).items() for number in numbers}
            end(time_ns, now)
            for each in now:
                open_at.setdefault(each, time_ns)
        end(now_ns)
    return found


def assignments(group: Group, now_ns: int) -> Options | None:
    """A diagram of who was assigned each partition over time, as ECharts has it; None if no assignment was seen."""
    periods = owned(group, now_ns)
    if not periods:
        return None
    changes = Counter((each.topic, each.partition) for each in periods)
    chosen = sorted(sorted(changes, key=lambda each: -changes[each])[:MOST_PARTITIONS])
    place = {each: at for at, each in enumerate(chosen)}
    members = sorted({id(each.member): each.member for each in periods}.values(), key=lambda member: member.first_ns)
    series: list[Options] = []
    for number, member in enumerate(members):
        name, color, data = f"{_name(member)} {number + 1}", _MEMBER_COLOURS[number % len(_MEMBER_COLOURS)], []
        for each in periods:
            if each.member is member and (at := place.get((each.topic, each.partition))) is not None:
                start, end = _bar(each.start_ns, each.end_ns)
                words = f"{visible(each.topic)}-{each.partition}\n{name}, {duration(each.end_ns - each.start_ns)}, from {clock(each.start_ns)}"
                data.append({"coords": [[start, at], [end, at]], "value": words, "connection": member.conn.number})
        series.append({
            "name": name, "type": "lines", "coordinateSystem": "cartesian2d", "data": data, "color": color, "clip": True,
            "lineStyle": {"width": max(3, min(12, 360 // len(chosen))), "opacity": 0.9, "color": color}, "tooltip": {"formatter": "{c}"},
        })  # fmt: skip
    first = min(member.first_ns for member in group.members.values())
    return _over_time([f"{visible(topic)}-{number}" for topic, number in chosen], series, first, now_ns)


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"


def _name(member: Member) -> str:
    return visible(member.conn.client_id or member.instance_id or member.member_id or "a member")


def _group_page(site: Site, group_id: str) -> None:
    def find() -> Group | None:
        return next((g for g in _groups(site) if visible(g.id) == group_id), None)

    shown: list[int] = [-1]
    holder = ui.element("div").classes("contents")

    def show() -> None:
        site.work.want("analysis")
        result = site.session.analysis.result
        if result.read == shown[0]:
            return
        shown[0] = result.read
        group = find()
        holder.clear()
        with holder:
            if group is None:
                note(f"There is no group {visible(group_id)}{' so far' if site.session.analysis.unread else ''}.")
            else:
                _group_parts(site, group)

    show()
    ui.timer(2 * TICK_SECONDS, show)


def _group_parts(site: Site, group: Group) -> None:
    result = site.session.analysis.result
    now = result.traffic.now_ns
    row = _row(site, group)
    with ui.element("div").classes("bar"):
        link("Groups", site.url("groups")).classes("button").props("data-key=q")
        text(row["group"], "title")
        text(row["state"], row["state_role"])
        text(f"generation {group.generation}, {_count(len(group.live), 'member')}, {_count(len(group.rebalances), 'rebalance')}, {row['protocol']}, {row['assignor']}", "muted")
        exchanges = text("Exchanges", "button", "a")
        exchanges.props["href"] = site.exchanges(f"group == {quoted(group.id)}")

    def opened(event: EChartPointClickEventArguments) -> None:
        if isinstance(event.data, dict) and isinstance(event.data.get("connection"), int):
            site.go(site.exchanges(f"conn == {event.data['connection']} and group == {quoted(group.id)}"))

    height = min(max(40 * len(group.members) + 110, 200), 620)
    ui.echart(gantt(group, now), on_point_click=opened).style(f"width: 100%; height: {height}px; flex: none").classes("gantt")
    given = assignments(group, now)
    if given is not None:
        text("Partitions and their members", "", "h2")
        lines = len(given["yAxis"]["data"])
        ui.echart(given, on_point_click=opened).style(f"width: 100%; height: {22 * lines + 100}px; flex: none").classes("assignments")
        more = len({(each.topic, each.partition) for each in owned(group, now)}) - lines
        if more > 0:
            text(f"{more:,} more partitions are not shown: they changed hands less often.", "muted", "p")
    for finding in [f for f in result.findings if f.about.get("group") == group.id]:
        text(f"! {visible(finding.id)}: {visible(finding.seen)}", "error", "p")
    text("Members and their partitions now", "", "h2")
    with ui.element("div").classes("scroll"), ui.element("table").classes("sheet"):
        with ui.element("tr"):
            for title in ("Member", "State", "Last seen", "Partitions"):
                text(title, tag="th")
        for member in sorted(group.members.values(), key=lambda m: (not m.live, m.first_ns)):
            held = member.assignment
            parts = "unknown" if held is None else ", ".join(f"{visible(t)}: {' '.join(map(str, p))}" for t, p in held.items()) or "none"
            with ui.element("tr").classes("" if member.live else "muted"):
                for words in (f"{_name(member)} ({visible(member.member_id)[-12:]})", str(member.state), clock(member.seen_ns), parts):
                    text(words, tag="td")
    text("Rebalances", "", "h2")
    with ui.element("div").classes("scroll"), ui.element("table").classes("sheet"):
        with ui.element("tr"):
            for title in ("Began", "Generation", "Took", "Because", "Who", "Reason given", "Waits for"):
                text(title, tag="th")
        for each in list(group.rebalances)[-MOST_REBALANCES:][::-1]:
            waits = [_name(m) for m in group.live if m.member_id in each.expected and each is group.rebalance]
            took = duration(each.duration_ns) if each.duration_ns else "in progress" if each is group.rebalance else ""
            with ui.element("tr"):
                for words in (
                    clock(each.began_ns), str(each.generation) if each.generation >= 0 else "", took, visible(each.cause), visible(each.who or ""),
                    visible(each.reason or ""), ", ".join(waits),
                ):  # fmt: skip
                    text(words, tag="td")
