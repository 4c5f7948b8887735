"""The translator as a version adapter (`plugins.versions.adapter`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from ...decoder.schema import facts
from ..versions.adapter import AdaptedRequest, Answer, Close, Forward, Step
from .translator import API_VERSIONS, Answered, Ranges, Translated, Translator


@dataclass(slots=True)
class _Memo:
    """A request under way, and the responses to its further parts."""

    translated: Translated
    before: dict[int, bytes] = field(default_factory=dict)


class TranslatingAdapter:
    """Between one client and a broker that serves `served`; `shown`: the versions that clients are offered, None for the
    usual ones."""

    def __init__(self, served: Ranges, shown: Ranges | None = None) -> None:
        self.translator = Translator(served, shown)
        self._translated_versions = _translated_versions(frozenset(served.items()))

    def wants(self, api_key: int, api_version: int) -> bool:
        return api_key << 16 | api_version in self._translated_versions

    def request(self, frame: bytes) -> Step:
        step = self.translator.request(frame)
        if step is None:
            return Forward(frame)
        if isinstance(step, Answered):
            note = f"not translated: {step.why}" if step.refusal else step.why
            return Answer(step.frame, note) if step.frame else Close(note=note)
        first, *further = step.frames
        note = "; ".join([f"translated from version {step.whole.version} to {step.whole.served}", *step.notes])
        return Forward(first, tuple(further), _Memo(step), note)

    def response(self, asked: AdaptedRequest, frame: bytes) -> bytes:
        memo = asked.memo
        if not isinstance(memo, _Memo):
            return frame
        further = [memo.before[place] for place in range(len(memo.translated.frames) - 1)]
        return self.translator.response(memo.translated, [frame, *further])

    def response_before(self, asked: AdaptedRequest, place: int, frame: bytes) -> None:
        if isinstance(asked.memo, _Memo):
            asked.memo.before[place] = frame


@lru_cache(64)
def _translated_versions(served: frozenset[tuple[int, tuple[int, int]]]) -> frozenset[int]:
    """``key << 16 | version`` of all versions that are not served unchanged."""
    translator = Translator(dict(served))
    return frozenset(
        key << 16 | version
        for key in facts.api_keys()
        for version in facts.api(key).versions.every()
        if key == API_VERSIONS or translator.target(key, version) != version
    )
