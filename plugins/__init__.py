"""Rules and plugins: faults to inject and changes to make. Knows the protocol, but no sockets and no recordings.

Programs import these names from here; see docs/rules.md and docs/plugins.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .actions.fault_plan import FaultPlan
    from .hooks.context import AskFailed, ConnectionEnded, Context, HookUsageError, PeerView
    from .hooks.sources import PluginError
    from .rules.rule_engine import RuleEngine
    from .rules.rules import InvalidInput, Rule, RuleError, load_rules, parse_rules

_MODULES = {
    "actions.fault_plan": ("FaultPlan",),
    "hooks.context": ("AskFailed", "ConnectionEnded", "Context", "HookUsageError", "PeerView"),
    "hooks.sources": ("PluginError",),
    "rules.rule_engine": ("RuleEngine",),
    "rules.rules": ("InvalidInput", "Rule", "RuleError", "load_rules", "parse_rules"),
}
__all__ = [
    "AskFailed", "ConnectionEnded", "Context", "FaultPlan", "HookUsageError", "InvalidInput", "PeerView", "PluginError",
    "Rule", "RuleEngine", "RuleError", "load_rules", "parse_rules",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """An exported name, imported when it is asked for: `barnabas --help` and most processes need none of them."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f".{module}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
