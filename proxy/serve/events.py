"""Events of a served recording. `text` is for people; `warning`: it needs attention."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..events import Address


@dataclass(frozen=True, slots=True)
class Serving:
    """Clients can connect. `nodes`: the current address of every recorded broker."""

    address: Address
    exchanges: int
    nodes: dict[int, Address] = field(default_factory=dict)
    warning: bool = False
    cut: int = 0
    """Exchanges that were recorded in part: they cannot be answered."""

    @property
    def text(self) -> str:
        rest = {node: address for node, address in sorted(self.nodes.items()) if address != self.address}
        more = "".join(f", broker {node} on {host}:{port}" for node, (host, port) in rest.items())
        if self.cut:
            more += f"; {self.cut} were cut when they were recorded (--snaplen), and have no answer"
        return f"serving {self.exchanges} recorded exchanges on {self.address[0]}:{self.address[1]}{more}"


@dataclass(frozen=True, slots=True)
class Miss:
    """A request that the recording cannot answer. `nearest` describes the most similar recorded request, number
    `nearest_number` of the recording, counted from 0; "" and None when there is none of this API."""

    client: str
    what: str
    done: str
    nearest: str = ""
    nearest_number: int | None = None
    warning: bool = True

    @property
    def text(self) -> str:
        near = f"; nearest in the recording: {self.nearest} (number {self.nearest_number})" if self.nearest else ""
        return f"miss: {self.client} requested {self.what}{near or '; the recording has nothing like it'}: {self.done}"


@dataclass(frozen=True, slots=True)
class ProducedOtherwise:
    """A produced record that differs from all recorded ones of its topic. `live` and `recorded` show the differences;
    `recorded` is "" when all recorded records were produced already."""

    client: str
    topic: str
    partition: int
    live: str
    recorded: str = ""
    warning: bool = True

    @property
    def text(self) -> str:
        there = f"the recording has {self.recorded}" if self.recorded else "the recording has no more records of this topic"
        return f"{self.client} produced a record to {self.topic}-{self.partition} that was not recorded: {self.live}; {there}"


@dataclass(frozen=True, slots=True)
class Trouble:
    """A connection that had to be closed."""

    client: str
    what: str
    warning: bool = True

    @property
    def text(self) -> str:
        return f"{self.client}: {self.what}"


@dataclass(frozen=True, slots=True)
class WaitsForProducer:
    """A consumer waits at the end of a log for records that a live producer must send first."""

    topic: str
    partition: int
    records: int
    warning: bool = False

    @property
    def text(self) -> str:
        return (
            f"a consumer waits at the end of {self.topic}-{self.partition}: the {self.records} recorded records become "
            f"available when they are produced again (--records all: from the start)"
        )


@dataclass(frozen=True, slots=True)
class NameTaken:
    """A live name that is new in every run was matched with a recorded one."""

    live: str
    recorded: str
    warning: bool = False

    @property
    def text(self) -> str:
        return f"{self.live} corresponds to {self.recorded} of the recording"


ServeEvent = NameTaken | Serving | Miss | ProducedOtherwise | Trouble | WaitsForProducer
