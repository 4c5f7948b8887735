"""The groups view: consumer groups, a timeline of each member, and why they rebalanced."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.binding import BindingType
from textual.widget import Widget

from ....decoder.findings.models.group import Group, Member, Step
from ...safe import fit, visible
from ...times import clock
from ..keys import bindings
from ..model.columns import duration
from ..model.filter_terms import quoted
from ..widgets.line_list import LineList, Table
from ..widgets.palette import Cell, Role
from ..widgets.styled import TextPane, TitleLine
from .view import View

_REBALANCES = 6
_RANK = {
    step: rank
    for rank, step in enumerate((
        Step.HEARTBEAT, Step.COMMIT, Step.SYNCED, Step.JOINED, Step.SYNC, Step.REBALANCE, Step.JOIN, Step.CLOSED,
        Step.DROPPED, Step.LEAVE, Step.ERROR,
    ))
}  # fmt: skip
"""Of several steps in one cell, the one with the highest rank is shown."""
_ROLES: dict[Step, Role] = {
    Step.HEARTBEAT: "muted", Step.COMMIT: "muted", Step.SYNCED: "ok", Step.JOINED: "ok", Step.SYNC: "name",
    Step.REBALANCE: "waiting", Step.JOIN: "name", Step.CLOSED: "undecoded", Step.DROPPED: "error", Step.LEAVE: "number",
    Step.ERROR: "error",
}  # fmt: skip
LEGEND = (
    "J joins j joined  S syncs s synced  h heartbeat  c commit  r rebalance reported  ! error  L leaves  d dropped  "
    "x connection ended  = waits"
)
_FIXED = 25  # cells of a member's line besides its name and timeline


class GroupsScreen(View):
    """Groups, and below them the members of the one under the cursor, with a timeline each."""

    DEFAULT_CSS = """
    GroupsScreen #groups { height: 25%; min-height: 4; }
    GroupsScreen #members { height: 1fr; }
    GroupsScreen.low TextPane { height: 5; }
    GroupsScreen TextPane { height: 8; padding: 0 1; border-top: solid $border-blurred; }
    """
    BINDINGS: ClassVar[list[BindingType]] = bindings("groups")
    number = 3
    context = "groups"
    needs_analysis = True

    def __init__(self) -> None:
        super().__init__()
        self.groups: list[Group] = []
        self.members: list[Member] = []
        self.zoom = 0
        self.pan = 0

    def body(self) -> Iterable[Widget]:
        self.titles, self.table = TitleLine(), Table(id="groups")
        self.axis, self.lines, self.text = TitleLine(), Table(id="members"), TextPane()
        return self.titles, self.table, self.axis, self.lines, self.text

    def empty_text(self) -> str:
        result = self.session.analysis.result
        if result.fault:
            return f"Groups are not available.\n\n{visible(result.fault)}"
        if result.groups.all():
            return ""
        if self.session.unread:
            return f"Reading: {result.progress:.0%}, no group so far."
        return (
            "No consumer group in this traffic: no client has sent JoinGroup, SyncGroup, Heartbeat or a group heartbeat."
        )

    def state_cells(self) -> list[Cell]:
        analysis = self.session.analysis
        cells: list[Cell] = [(f"{len(self.groups)} group{'s' * (len(self.groups) != 1)}", "")]
        if analysis.unread:
            cells.append((f" {analysis.result.progress:.0%}", "waiting"))
        return cells

    def update_rows(self) -> None:
        self.titles.show(
            f"  {'Group':<{self._name_room}} State                  Generation  Members  Rebalances  Protocol   Assignor"
        )
        self.groups = sorted(self.session.analysis.result.groups.all(), key=lambda g: (-len(g.rebalances), g.id))
        self.table.show([self._group(group) for group in self.groups])
        self._show_details()

    def _group(self, group: Group) -> list[Cell]:
        state = group.state
        waiting = group.rebalance
        since = f" {duration(self._now - waiting.began_ns)}" if waiting is not None else ""
        return [
            (" " + fit(visible(group.id), self._name_room) + " ", "title"),
            (fit(f"{state}{since}", 23), "ok" if state == "Stable" else "waiting" if state == "Empty" else "error"),
            (f"{group.generation:>10}  ", ""),
            (f"{len(group.live):>7}  ", ""),
            (f"{len(group.rebalances):>10}  ", "error" if len(group.rebalances) > 5 else ""),
            (fit(visible(group.protocol or "?"), 10) + " ", "muted"),
            (visible(group.assignor), "muted"),
        ]

    @property
    def _name_room(self) -> int:
        """Cells for a group's name. On a narrow screen the number of rebalances is more important."""
        return 30 if self.app.size.width >= 100 else 18

    @property
    def _room(self) -> int:
        """Cells for a member's name."""
        return max(10, min(self.size.width // 5, 26))

    @property
    def _now(self) -> int:
        return self.session.analysis.result.traffic.now_ns

    @property
    def current(self) -> Group | None:
        """The group under the cursor."""
        return self.groups[self.table.cursor] if self.table.cursor < len(self.groups) else None

    def _span(self, group: Group) -> tuple[int, int]:
        """The period of time that is shown."""
        members = list(group.members.values())
        first = min((m.first_ns for m in members), default=self._now)
        whole = max(self._now - first, 1_000_000)
        length = whole >> self.zoom
        end = max(self._now - self.pan * length // 4, first + length)
        return end - length, end

    def _show_details(self) -> None:
        group = self.current
        if group is None:
            self.lines.show([])
            self.text.show([])
            return
        start, end = self._span(group)
        width = max(self.size.width - self._room - _FIXED - 2, 10)
        axis = f"  {'Member':<{self._room}} {'Last seen':>9} {'Assigned':>9}   {clock(start)}"
        self.axis.show(fit(axis, self.size.width - 14) + clock(end))
        self.members = sorted(group.members.values(), key=lambda m: (not m.live, m.first_ns))
        self.lines.show([self._member(m, start, end, width) for m in self.members])
        self._rebalances(group)

    def _member(self, member: Member, start: int, end: int, width: int) -> list[Cell]:
        silent = self._now - member.seen_ns
        limit = member.session_timeout_ms * 1_000_000
        late = member.live and not member.waits and 0 < limit < silent
        name = member.conn.client_id or member.instance_id or member.member_id
        given = sum(len(p) for p in member.assignment.values()) if member.assignment is not None else None
        last = "left" if not member.live else duration(silent)
        return [
            (" " + fit(visible(name), self._room) + " ", "title" if member.live else "muted"),
            (f"{last:>8}{'!' if late else ' '} ", "error" if late else "" if member.live else "muted"),
            (f"{'' if given is None else given:>8}   ", ""),
            *timeline(member, start, end, width),
        ]

    def _rebalances(self, group: Group) -> None:
        lines: list[list[Cell]] = []
        for each in list(group.rebalances)[-_REBALANCES:][::-1]:
            waits = [
                m.conn.client_id or m.member_id
                for m in group.live
                if m.member_id in each.expected and each is group.rebalance
            ]
            took = (
                f"took {duration(each.duration_ns)}"
                if each.duration_ns
                else "in progress"
                if each is group.rebalance
                else ""
            )
            lines.append([
                (f"{clock(each.began_ns)} ", "muted"),
                (f"{f'to generation {each.generation}' if each.generation >= 0 else 'rebalance':<17}", "name"),
                (f"{took:<13} ", "error" if each is group.rebalance else ""),
                (f"waits for {visible(', '.join(waits))}  " if waits else "", "error"),
                (f"because {visible(each.cause)}", ""),
                (f": {visible(each.who)}" if each.who else "", "muted"),
                (f" ({visible(each.reason)})" if each.reason else "", "muted"),
            ])  # fmt: skip
        related = [f for f in self.session.analysis.result.findings if f.about.get("group") == group.id]
        for finding in reversed(related[:2]):  # the worst on top
            lines.insert(0, [(f"! {visible(finding.id)}: ", "error"), (visible(finding.seen), "")])
        self.text.show(lines)
        self.about.show([(f" {LEGEND}", "muted")])

    def on_line_list_moved(self, event: LineList.Moved) -> None:
        if event.lines is self.table:
            self._show_details()

    def on_resize(self) -> None:
        self.set_class(self.app.size.height < 32, "low")
        self.update_rows()

    def on_line_list_opened(self, event: LineList.Opened) -> None:
        if event.lines is self.table:
            self.set_focus(self.lines)
            return
        group = self.current
        if group is None or event.position >= len(self.members):
            return
        member = self.members[event.position]
        text = f"conn == {member.conn.number} and group == {quoted(group.id)}"
        self.barnabas.show_exchanges(text)

    def action_zoom(self, step: int) -> None:
        self.zoom = max(0, min(self.zoom + step, 12))
        self._show_details()

    def action_pan(self, step: int) -> None:
        self.pan = max(0, min(self.pan - step, (4 << self.zoom) - 4))
        self._show_details()


def timeline(member: Member, start_ns: int, end_ns: int, width: int) -> list[Cell]:
    """`width` cells from `start_ns` to `end_ns`. Between two steps: ``=`` while it waits for an answer to its JoinGroup
    or SyncGroup, ``.`` while it is a member, nothing before and after."""
    letters = [" "] * width
    roles: list[Role] = [""] * width
    ranks = [-1] * width
    length = max(end_ns - start_ns, 1)

    def place(time_ns: int) -> int:
        return (time_ns - start_ns) * width // length

    moments = list(member.timeline)
    # While the capture is being read, a member may have done nothing yet.
    for this, following in zip(moments, [*moments[1:], None], strict=False):
        end = following.time_ns if following is not None else (end_ns if member.live else this.time_ns)
        waits = this.step in (Step.JOIN, Step.SYNC)
        if this.step in (Step.LEAVE, Step.DROPPED):
            continue
        for at in range(max(place(this.time_ns), 0), min(place(end) + 1, width)):
            letters[at], roles[at] = ("=", "waiting") if waits else (".", "muted")
    for moment in moments:
        at = place(moment.time_ns)
        if at == width:
            at -= 1
        if 0 <= at < width and _RANK[moment.step] >= ranks[at]:
            letters[at], roles[at], ranks[at] = str(moment.step), _ROLES[moment.step], _RANK[moment.step]
    cells: list[Cell] = []
    for letter, role in zip(letters, roles, strict=True):
        if cells and cells[-1][1] == role:
            cells[-1] = cells[-1][0] + letter, role
        else:
            cells.append((letter, role))
    return cells
