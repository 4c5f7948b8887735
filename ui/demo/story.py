"""What the demonstration breaks on purpose."""

from __future__ import annotations

from ...decoder import facts
from ...plugins.rules import Rule
from .traffic import TOPIC

RULES = [
    Rule(
        name="leader moved",
        api_key=facts.api_key("Produce"),
        error_code=facts.error_code("NOT_LEADER_OR_FOLLOWER"),
        topic=TOPIC,
        after=20,
        times=3,
    )
]
