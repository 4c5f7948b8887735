"""The rules of a running relay: their list, where they came from, their counts, and who waits for hits.

Every change makes a new `RuleEngine` that goes on counting where the old one stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from .....decoder import Exchange
from .....errors import BarnabasError
from .....plugins.actions.fault_plan import FaultPlan
from .....plugins.conditions.when import RuleCounter
from .....plugins.rules.rule_engine import RuleEngine
from ....processes.control_messages import RuleEntry, RuleHits, RuleState
from ....processes.shared_counters import FileRule, SharedCounters, first_serial
from ....ring.clock import now_ns
from .hits import Hits

OnHits = Callable[[int], None]
"""Called with the hits of a rule."""


class NoSuchRule(BarnabasError, LookupError):
    """No rule has this name."""


class RuleExists(BarnabasError, ValueError):
    """A rule of this name is there already."""


def _from_file(given: FileRule) -> RuleEntry:
    return RuleEntry(given.rule, given.rule.to_dict(), origin="file", serial=given.serial)


class LiveRules:
    """All rules in their order. `changed` is called with the new engine after every change."""

    def __init__(
        self,
        rules: Iterable[FileRule],
        changed: Callable[[RuleEngine], None],
        shared_counters: SharedCounters | None = None,
    ) -> None:
        self._entries = [_from_file(each) for each in rules]
        self._shared_counters = shared_counters
        self._shared: dict[int, RuleCounter] = {}
        self._changed = changed
        self._counts: dict[str, tuple[int, int]] = {}
        self._waiting: dict[int, tuple[str, int, OnHits]] = {}
        self._hits = Hits()
        self._number = 0
        self.engine = RuleEngine([each.rule for each in self._entries])
        if shared_counters is not None:
            self.engine = self.engine.with_rules(self.engine.rules, {}, self._counters_by_name())

    def listed(self) -> list[RuleState]:
        """Every rule, with its counts."""
        self._remember()
        found = []
        for each in self._entries:
            matched, hits = self._counts.get(each.rule.name, (0, 0))
            found.append(RuleState(each.rule.name, each.enabled, matched, hits, each.origin, each.source))
        return found

    @property
    def together(self) -> bool:
        """Whether the counts are those of all workers."""
        return self._shared_counters is not None

    def _counters_by_name(self) -> dict[str, RuleCounter] | None:
        """The counts that all workers share, by the names of their rules; None where there is one worker."""
        if self._shared_counters is None:
            return None
        for each in self._entries:
            each.serial = each.serial or each.fresh or first_serial(each.rule)
            if each.serial not in self._shared:
                self._shared[each.serial] = self._shared_counters.count(each.serial, now_ns())
        standing = {each.serial for each in self._entries}
        self._shared_counters.keep(standing)
        self._shared = {serial: count for serial, count in self._shared.items() if serial in standing}
        return {each.rule.name: self._shared[each.serial] for each in self._entries}

    def _remember(self) -> None:
        self._counts.update(self.engine.counts())
        for each in self._entries:
            if (count := self._shared.get(each.serial)) is not None:
                self._counts[each.rule.name] = count.matched, count.hits

    def _become(self, entries: list[RuleEntry], forget: Iterable[str] = ()) -> None:
        """Have these rules from now on, or all as it was if they cannot be had. Those to `forget` count from 0."""
        before, engine, counts = self._entries, self.engine, self._counts
        self._entries = entries
        try:
            self._renew(forget)
        except Exception:
            self._entries, self.engine, self._counts = before, engine, counts
            self._changed(engine)
            raise

    def _renew(self, forget: Iterable[str]) -> None:
        self._remember()
        self._counts = dict(self._counts)
        for name in forget:
            self._counts.pop(name, None)
        names = {each.rule.name for each in self._entries}
        self._counts = {name: counts for name, counts in self._counts.items() if name in names}
        self._hits.keep(self._counts)
        rules = [each.rule for each in self._entries if each.enabled]
        self.engine = self.engine.with_rules(rules, self._counts, self._counters_by_name())
        self._changed(self.engine)

    def _index(self, name: str) -> int:
        for index, each in enumerate(self._entries):
            if each.rule.name == name:
                return index
        raise NoSuchRule(f"no rule is named {name!r}")

    def add(self, rules: list[RuleEntry]) -> None:
        """Append; RuleExists if one of the names is taken."""
        known = {each.rule.name for each in self._entries}
        for each in rules:
            if each.rule.name in known:
                raise RuleExists(f"there is already a rule named {each.rule.name!r}: replace it, or choose another name")
        self._become(self._entries + rules)

    def replace_all(self, rules: list[RuleEntry]) -> None:
        """Exactly these from now on. Rules that are the same as before keep their counts."""
        before = {each.rule.name: each for each in self._entries}
        changed = [each for each in rules if each.rule.name not in before or before[each.rule.name].rule != each.rule]
        for each in rules:
            if each not in changed:
                each.serial = each.serial or before[each.rule.name].serial
        self._become(rules, [each.rule.name for each in changed])

    def replace_file(self, given: Iterable[FileRule]) -> None:
        """Exactly these of the file from now on, in the place of those that came from it before; rules that came over
        the control API stay behind them. RuleExists if one of those has a name of these. Rules that are the same as
        before keep their counts, and stay off if they were switched off."""
        rules = [_from_file(each) for each in given]
        others = [each for each in self._entries if each.origin != "file"]
        before = {each.rule.name: each for each in self._entries if each.origin == "file"}
        taken = {each.rule.name for each in others}
        for each in rules:
            if each.rule.name in taken:
                raise RuleExists(
                    f"the file's rule {each.rule.name!r} has the name of one that was added over the control API: "
                    "remove that one, or choose another name"
                )
            known = before.get(each.rule.name)
            if known is not None and known.rule == each.rule:
                each.enabled = known.enabled
                each.serial = each.serial or known.serial
        changed = [each.rule.name for each in rules if each.rule.name not in before or before[each.rule.name].rule != each.rule]
        self._become(rules + others, changed)

    def entries(self) -> list[RuleEntry]:
        """All rules, for a relay that begins anew."""
        return list(self._entries)

    def put(self, rule: RuleEntry) -> bool:
        """Put a rule in the place of the one of its name, counting from 0, or at the end. Whether it is new."""
        name = rule.rule.name
        new = all(each.rule.name != name for each in self._entries)
        others = [rule if each.rule.name == name else each for each in self._entries]
        self._become([*others, rule] if new else others, (name,))
        return new

    def remove(self, name: str) -> None:
        at = self._index(name)
        self._become(self._entries[:at] + self._entries[at + 1 :])

    def enable(self, name: str, enabled: bool) -> None:
        """Switch a rule on or off; its counts stay."""
        at = self._index(name)
        if self._entries[at].enabled != enabled:
            self._become([*self._entries[:at], replace(self._entries[at], enabled=enabled), *self._entries[at + 1 :]])

    def hits(self, name: str, since: int = 0) -> RuleHits:
        """The newest hits of a rule after its `since`-th."""
        self._index(name)
        self._remember()
        return RuleHits(self._hits.of(name, since), self._counts.get(name, (0, 0))[1])

    # -- waiting for hits ------------------------------------------------------------------------------------

    def wait(self, name: str, hits: int, on_hits: OnHits) -> int | None:
        """Call `on_hits` when the rule has so many hits; None if that is so already (and it has been called), else a
        number for `forget`."""
        self._index(name)
        self._remember()
        already = self._counts.get(name, (0, 0))[1]
        if already >= hits:
            on_hits(already)
            return None
        self._number += 1
        self._waiting[self._number] = name, hits, on_hits
        return self._number

    def forget(self, number: int) -> None:
        self._waiting.pop(number, None)

    def corrected(self, faults: FaultPlan) -> None:
        """What a rule has done is known better, now that the response is there."""
        self._hits.correct(faults)

    def fired(self, faults: FaultPlan, exchange: Exchange, now_ns: int) -> None:
        """A rule has fired."""
        name, hits = faults.rule, faults.hits
        self._hits.add(faults, exchange, now_ns)
        if self._waiting:
            for number, (wanted, least, on_hits) in list(self._waiting.items()):
                if wanted == name and hits >= least:
                    del self._waiting[number]
                    on_hits(hits)
