"""Actions on the versions that a client is offered, from the request on for which the rule fires."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ...decoder import Exchange
from ...decoder.filter import Filter
from ...decoder.schema import facts
from ..conditions.input_value import InputValue, InvalidInput
from ..versions.emulated_release import EmulatedRelease
from ..versions.profile import Profile, api
from .action import Action, ActionContext
from .fault_plan import FaultPlan


@dataclass(frozen=True, slots=True)
class Pretend(Action):
    """``pretend: "0.10.2"``: the client of this connection sees a broker of that release (`versions.profile`). An
    additional `cap` lowers some of its versions."""

    KEYS: ClassVar[tuple[str, ...]] = ("pretend", "cap")
    EARLY: ClassVar[bool] = True

    profile: Profile
    adapter: EmulatedRelease = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "adapter", EmulatedRelease(self.profile))

    @classmethod
    def read(cls, fields: Mapping[str, InputValue], wanted: Filter) -> Pretend:
        given = fields["pretend"]
        name = given.text("pretend")
        if not isinstance(given.value, str):
            given.invalid(f'a release is text: write it in quotes, such as "{name}" (2.10 would be read as 2.1)')
        try:
            Profile.of(name)
        except ValueError as error:
            given.invalid(str(error))
        return cls(_with_caps(fields.get("cap"), name))

    def to_dict(self) -> dict[str, Any]:
        return self.profile.to_dict()

    def add_to(self, faults: FaultPlan, exchange: Exchange, context: ActionContext) -> None:
        faults.adapter = self.adapter
        faults.notes.append(self.profile.offer)


@dataclass(frozen=True, slots=True)
class Cap(Pretend):
    """``cap: {Fetch: 11, Produce: 7}``: the client of this connection gets no higher versions of these APIs."""

    KEYS: ClassVar[tuple[str, ...]] = ("cap",)

    @classmethod
    def read(cls, fields: Mapping[str, InputValue], wanted: Filter) -> Cap:
        return cls(_with_caps(fields["cap"], ""))


def _with_caps(given: InputValue | None, release: str) -> Profile:
    if given is None:
        return Profile.of(release)
    if not isinstance(given.value, Mapping) or not given.items:
        given.invalid("'cap' must contain APIs and their highest versions: {Fetch: 11, Produce: 7}")
    caps: dict[str, int] = {}
    for name, item in given.items.items():
        try:
            known = facts.api_name(api(name))
        except ValueError as error:
            raise InvalidInput(item, str(error), key=True) from None
        caps[name] = item.number(known, 0, 0x7FFF)
        try:
            Profile.of(release, caps)
        except ValueError as error:
            item.invalid(str(error))
    if given.duplicate_key:
        raise InvalidInput(given.items[given.duplicate_key], f"{given.duplicate_key!r} is given twice", key=True)
    return Profile.of(release, caps)
