"""One rebalance of a group: why it began, who came when, how long each part of it took."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from .scene import Link


class Cause(StrEnum):
    """What makes a group rebalance, in words."""

    FIRST = "its first member joined"
    JOIN = "a new member joined"
    LEAVE = "a member left"
    TIMEOUT = "a member was silent for its session timeout"
    SUBSCRIPTION = "a member changed its subscription"
    REJOIN = "a member joined again (its leader saw other partitions, or a cooperative rebalance went on)"
    UNSEEN = "something that was not captured"


@dataclass(slots=True, eq=False)
class Rebalance:
    """Times are nanoseconds since the epoch, 0 for not yet (or not seen).

    `who`: the member that caused it, in words, "" if unknown; `said`: the reason it gave. `expected`: the ids of the
    members that had to join again and have not. `joins`: when each member joined. `formed_ns`: the coordinator
    answered; `leader_sync_ns`: the leader sent the assignments; `synced_ns`: the last member got its own. `size`: of
    the generation.
    """

    began_ns: int
    cause: Cause
    who: str
    said: str
    expected: set[str]
    link: Link | None = None
    generation: int = -1
    size: int = 0
    first_join_ns: int = 0
    formed_ns: int = 0
    leader_sync_ns: int = 0
    synced_ns: int = 0
    joins: dict[str, int] = field(default_factory=dict)

    def joined(self, member_id: str, time_ns: int) -> None:
        """A member has joined (again)."""
        if member_id:
            self.expected.discard(member_id)
            self.joins[member_id] = time_ns

    @property
    def duration_ns(self) -> int:
        """From the first JoinGroup to the last SyncGroup answer; 0 as long as it is not through."""
        return self.synced_ns - self.first_join_ns if self.synced_ns and self.first_join_ns else 0
