"""What the demonstration breaks on purpose."""

from __future__ import annotations

from ...plugins.rules.rules import Rule
from .traffic import TOPIC

RULES = [
    Rule.of(
        f"api == Produce and topic == {TOPIC}",
        {"error": "NOT_LEADER_OR_FOLLOWER"},
        name="leader moved",
        when={"after": 20, "times": 3},
    )
]
