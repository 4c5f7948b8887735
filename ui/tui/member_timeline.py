"""The timeline of a group's member: a letter for what it did in each stretch of time."""

from __future__ import annotations

from ...decoder.findings.group_members import Member, Step
from .columns import Cell

_RANK = {
    step: rank
    for rank, step in enumerate((
        Step.HEARTBEAT, Step.COMMIT, Step.SYNCED, Step.JOINED, Step.SYNC, Step.TOLD, Step.JOIN, Step.CLOSED,
        Step.DROPPED, Step.LEAVE, Step.ERROR,
    ))
}  # fmt: skip
"""Where several things happen in one stretch, the last of these is shown."""
_ROLES = {
    Step.HEARTBEAT: "muted", Step.COMMIT: "muted", Step.SYNCED: "ok", Step.JOINED: "ok", Step.SYNC: "name",
    Step.TOLD: "waiting", Step.JOIN: "name", Step.CLOSED: "undecoded", Step.DROPPED: "error", Step.LEAVE: "number",
    Step.ERROR: "error",
}  # fmt: skip
LEGEND = (
    "J joins j joined  S syncs s synced  h heartbeat  c commit  r told of a rebalance  ! error  L leaves  d dropped  "
    "x connection ended  = waits"
)


def timeline(member: Member, start_ns: int, end_ns: int, width: int) -> list[Cell]:
    """`width` cells from `start_ns` to `end_ns`. Between two steps: ``=`` while it waits for an answer to its JoinGroup
    or SyncGroup, ``.`` while it is a member, nothing before and after."""
    letters = [" "] * width
    roles = [""] * width
    ranks = [-1] * width
    length = max(end_ns - start_ns, 1)

    def place(time_ns: int) -> int:
        return (time_ns - start_ns) * width // length

    moments = list(member.timeline)
    # A member that is painted while the traffic is read may have done nothing yet.
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
