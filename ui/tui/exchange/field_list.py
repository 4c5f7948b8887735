"""A decoded frame as a flat list of fields: what the field tree draws, line by line.

A field knows its depth and how many fields below it follow, so folding is arithmetic and nothing is nested. The
text is safe for the terminal here already. Byte positions count from the frame's first byte.

Of a large frame the items of long arrays are made when somebody looks into them (`Field.later`, `Tree.open`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Field:
    """One line of the tree. ``below``: how many of the next fields are inside of it; ``span``: (start, end) or None;
    ``later``: makes the fields inside, when they have not been made."""

    depth: int
    name: str
    value: str = ""
    role: str = ""
    path: str = ""
    span: tuple[int, int] | None = None
    below: int = 0
    folded: bool = False
    error: bool = False
    later: Callable[[], list[Field]] | None = None
    opened: bool = False

    @property
    def holds(self) -> bool:
        """Whether there are fields inside."""
        return self.below > 0 or self.later is not None


@dataclass(slots=True)
class Tree:
    """One side of an exchange: fields, the frame to be shown as bytes, and which byte ranges stay hidden.

    ``fault``: why it could not be decoded, with the ``fault_at`` byte. ``spans``: of the body's fields, by path.
    """

    fields: list[Field] = field(default_factory=list)
    frame: bytes = b""
    hidden: list[tuple[int, int]] = field(default_factory=list)
    fault: str | None = None
    fault_at: int | None = None
    note: str = ""
    """What to say where there is no frame."""
    failures: dict[str, str] = field(default_factory=dict)
    """Of a large message: the first error inside of each field, by the field's path."""

    @property
    def octets(self) -> str:
        """The size for a title."""
        return f"  {len(self.frame)} B" if self.frame else "  none"

    def open(self, at: int) -> None:
        """Make what is inside of the field at a position, if that has not been done."""
        opened = self.fields[at]
        if opened.later is None:
            return
        inside, opened.later, opened.opened = opened.later(), None, True
        self.fields[at + 1 : at + 1] = inside
        opened.below = len(inside)
        depth = opened.depth
        for around in range(at - 1, -1, -1):
            if depth == 0:
                break
            if self.fields[around].depth < depth:
                self.fields[around].below += len(inside)
                depth = self.fields[around].depth

    def reveal(self, path: str) -> int | None:
        """The position of the field with this path, made if need be; None if there is none."""
        while True:
            closed = None
            for at, each in enumerate(self.fields):
                if each.path == path and each.path:
                    return at
                if each.later is not None and path.startswith(each.path) and path[len(each.path) :][:1] in ("[", "."):
                    closed = at
            if closed is None:
                return None
            self.open(closed)

    def next_error(self, behind: int, errors: Iterable[tuple[str, int]]) -> int | None:
        """The position of the first error code that is not 0 behind a position, or else of the first one. `errors`: of the
        message, as paths and codes."""
        places: list[tuple[float, str]] = [(at, "") for at, each in enumerate(self.fields) if each.error]
        closed = {each.path: at for at, each in enumerate(self.fields) if each.later is not None}
        for path, _ in errors if closed else ():
            around = path
            while around and around not in closed:
                around = around[: max(around.rfind("."), around.rfind("["), 0)]
            if around:  # behind the field that it is in, and before the next
                places.append((closed[around] + 0.5, path))
        places.sort(key=lambda place: place[0])
        if not places:
            return None
        position, path = next((place for place in places if place[0] > behind), places[0])
        return self.reveal(path) if path else int(position)

    def telling(self, at: int) -> Field:
        """The field at a position, for the eye: an item that was not opened says what is in it."""
        found = self.fields[at]
        if found.later is not None and not found.value and found.name.startswith("["):
            found.value, found.role = headline(found.later(), found.depth + 1, self.failures.get(found.path, ""))
        return found

    def complete(self) -> None:
        """Make everything; of a message with some hundred thousand fields that takes a second."""
        made: list[Field] = []
        waiting = [iter(self.fields)]
        while waiting:
            each = next(waiting[-1], None)
            if each is None:
                waiting.pop()
                continue
            made.append(each)
            if each.later is not None:
                waiting.append(iter(each.later()))
                each.later, each.opened = None, True
        around: list[int] = []
        for at, depth in enumerate([*(each.depth for each in made), 0]):
            while around and made[around[-1]].depth >= depth:
                parent = around.pop()
                made[parent].below = at - 1 - parent
            around.append(at)
        self.fields = made


def headline(inside: list[Field], depth: int, error: str = "") -> tuple[str, str]:
    """What an array element says about itself when folded: its first telling field, and its error if it has one; text
    and role. `depth`: of its own fields among those `inside`; `error`: the first one, where not all fields are made."""
    error = error or next((f.value for f in inside if f.error), "")
    own = (f for f in inside if f.depth == depth and f.value and not f.name.endswith("error_code"))
    first_one = next(own, None)
    naming = ""
    if first_one is not None:
        naming = first_one.value if first_one.role == "string" else f"{first_one.name} {first_one.value}"
    return "  ".join(
        part for part in (naming[:40], f"! {error}" if error else "") if part
    ), "error" if error else "muted"


def visible_fields(tree: Tree) -> Iterator[int]:
    """The positions of the fields that are not inside of a folded one."""
    at, fields = 0, tree.fields
    while at < len(fields):
        yield at
        at += 1 + (fields[at].below if fields[at].folded else 0)


def field_at(tree: Tree, at: int) -> int | None:
    """The position of the innermost field that holds a byte, made if need be; None if none does."""
    while True:
        best: int | None = None
        width = 1 << 62
        for position, each in enumerate(tree.fields):
            if each.span is not None and each.span[0] <= at < each.span[1] and each.span[1] - each.span[0] <= width:
                best, width = position, each.span[1] - each.span[0]
        if best is None or tree.fields[best].later is None:
            return best
        tree.open(best)
