"""Reads from the target what no response of the replay contains: its topics, producer ids, ends of logs."""

from __future__ import annotations

from ...captures.replay.mapping import IdMapping, UnknownId
from ...captures.replay.report import ReplayReport
from ...captures.replay.script import Script
from ...decoder.schema.meaning import Meaning
from .dialer import TargetFailed
from .target import TargetCluster

_INTERNAL = "__"


class TargetResolver:
    """Sends its requests on the target's own connections; the replay waits meanwhile."""

    def __init__(
        self, script: Script, target: TargetCluster, mapping: IdMapping, report: ReplayReport, create_topics: bool = False
    ) -> None:
        self._script, self._target, self._mapping, self._report = script, target, mapping, report
        self._create = create_topics
        self._seen: set[str] = set()
        self._producers: dict[int, tuple[int, int]] = {}
        self._share()

    def new_topics(self) -> None:
        """Handle topics that the recording has named since the last call: create missing ones if so configured, and read
        where their logs end."""
        recorded = self._script.recorded
        if recorded.brokers and not self._mapping.brokers:
            here, there = sorted(recorded.brokers), sorted(self._target.brokers)
            self._mapping.brokers = {a: there[i % len(there)] for i, a in enumerate(here)} if there else {}
        new = {name: count for name, count in recorded.partitions.items() if name not in self._seen}
        if not new:
            return
        self._seen.update(new)
        target, names = self._target, self._mapping.names
        try:
            target.refresh()
            missing = {
                names.topic(name): count
                for name, count in new.items()
                if names.topic(name) not in target.topics and name not in recorded.created and not name.startswith(_INTERNAL)
            }
            if missing and self._create:
                for topic, why in target.create(missing).items():
                    self._report.warnings.append(f"topic {topic} could not be created: {why}")
                target.refresh()
            elif missing:
                shown = ", ".join(sorted(missing)[:5]) + (" ..." if len(missing) > 5 else "")
                self._report.warnings.append(
                    f"the target lacks {len(missing)} topic{'s' * (len(missing) != 1)} of the recording ({shown}): --create-topics creates them"
                )
            back = {names.topic(name): name for name in new}
            there_before = [topic for topic in back if topic in target.topics]
            for (topic, partition), end in (target.ends(there_before) if there_before else {}).items():
                name = back[topic]
                self._mapping.offsets_of(name, partition).start = end - recorded.ends.get((name, partition), 0)
        except TargetFailed as error:
            self._report.warnings.append(str(error))
        for place in [key for key, offsets in self._mapping.offsets.items() if not offsets.start and not offsets]:
            del self._mapping.offsets[place]  # the same offsets: nothing to map
        self._share()

    def refresh(self) -> None:
        """Refresh: leaders or coordinators have moved, or topics are new."""
        try:
            self._target.refresh()
        except TargetFailed as error:
            if str(error) not in self._report.warnings:
                self._report.warnings.append(str(error))
        self._share()

    def resolve(self, unknown: UnknownId) -> None:
        """Find the target's value for an id."""
        mapping = self._mapping
        if unknown.role is Meaning.PRODUCER_ID:
            try:
                own = self._producers.setdefault(unknown.value, self._target.producer())
            except TargetFailed as error:
                self._report.warnings.append(str(error))
                return
            self._report.note("producer ids from before the recording: the target assigned new ones")
            mapping.producer_ids[unknown.value] = own[0]
        elif unknown.role is Meaning.TOPIC_ID:
            name = self._script.recorded.topics.get(unknown.value)
            self.refresh()
            there = mapping.topics.get(mapping.names.topic(name)) if name is not None else None
            if there is not None:
                mapping.topic_ids[unknown.value] = there
            else:
                mapping.topic_ids[unknown.value] = unknown.value
                self._report.note("topic ids that are not known at the target, sent as recorded")
        elif unknown.role is Meaning.MEMBER_ID:
            mapping.members[unknown.value] = unknown.value
            self._report.note("member ids that the target has not assigned, sent as recorded")
        elif unknown.role is Meaning.GENERATION:
            mapping.generations[unknown.value] = unknown.value[1]
            self._report.note("generations that the target has not sent, sent as recorded")

    def _share(self) -> None:
        self._mapping.cluster_id = self._target.cluster_id
        self._mapping.topics = {name: topic.topic_id for name, topic in self._target.topics.items() if any(topic.topic_id)}
