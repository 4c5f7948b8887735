"""Other orders of a capture's rows, from columns of its index: no row is made.

With numpy ten million rows take a second or two. Without it rows are compared one by one (`row_words.SORTS`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...captures import Capture
from ...captures.index import STATE_MASK, UNDECODED
from ...captures.selection import has_numpy
from .row_words import SORTS

if TYPE_CHECKING:
    from ...captures.index import Index
    from .rows import RowView


def sort(view: RowView, capture: Capture, by: tuple[str, bool] | None) -> None:
    """Order what `view` shows by (column title, descending); None: as in the capture."""
    if by is None:
        view.put(None)
        return
    title, descending = by
    if not has_numpy():
        view.sort(SORTS[title], descending)
        return
    import numpy

    keys = _keys(capture, title)
    numbers = view.numbers()
    wanted = numpy.asarray(numbers, dtype=numpy.int64) if not isinstance(numbers, range) else None
    if wanted is not None:
        keys = keys[wanted]
    elif len(keys) > len(numbers):  # a live recording: the list has not taken these in
        keys = keys[: len(numbers)]
    order = numpy.argsort(-keys if descending else keys, kind="stable")
    view.put((order if wanted is None else wanted[order]).astype(numpy.uint64).tobytes())


def _keys(capture: Capture, title: str) -> Any:
    """A number for each row of the capture; rows are in the order of their numbers."""
    import numpy

    parts = []
    for i, file in enumerate(capture.segments):
        parts.append((file.index, file.index.array()[: capture.starts[i + 1] - capture.starts[i]]))
    if title in ("Client", "Address", "Broker"):
        return _ranks([_texts(title, index, array) for index, array in parts])
    if title == "No":
        return numpy.arange(capture.starts[-1], dtype=numpy.int64)
    return numpy.concatenate([_numbers(title, array) for _, array in parts])


def _numbers(title: str, a: Any) -> Any:
    import numpy

    wide = numpy.int64
    if title == "API":
        return a["api_key"].astype(wide) << 16 | a["api_version"]
    if title == "Latency":
        return a["latency_ns"].clip(-1).astype(wide)
    if title == "Req>Resp":
        sent = numpy.where(a["request_offset"] >= 0, a["request_size"], 0).astype(wide)
        return sent + numpy.where(a["response_offset"] >= 0, a["response_size"], 0)
    if title == "Result":
        undecoded = (a["flags"] & UNDECODED != 0).astype(wide)
        return undecoded << 40 | (a["error"].astype(wide) + (1 << 16)) << 8 | _state_ranks()[a["flags"] & STATE_MASK]
    column = {"Time": "time_ns", "Conn": "connection", "Corr": "correlation_id", "Ver": "api_version"}[title]
    return a[column].astype(wide)


def _state_ranks() -> Any:
    """States are ordered by their names."""
    import numpy

    from ...captures.index import STATES

    names = sorted(STATES)
    ranks: Any = numpy.zeros(STATE_MASK + 1, numpy.int64)
    ranks[: len(STATES)] = [names.index(state) for state in STATES]
    return ranks


def _texts(title: str, index: Index, a: Any) -> tuple[list[str], Any]:
    """The texts that stand in a column, and which of them each row has."""
    import numpy

    connections, which = numpy.unique(a["connection"], return_inverse=True)
    ends = [index.connections.get(n) for n in connections.tolist()]
    addresses = ["" if end is None else end.broker if title == "Broker" else end.client for end in ends]
    if title != "Client":
        return addresses, which
    ids, own = numpy.unique(a["client_id"], return_inverse=True)
    names = [index.string(n) or "" for n in ids.tolist()]
    # A client without an id goes by its address.
    nameless = numpy.array([not name for name in names])
    return [*names, *addresses], numpy.where(nameless[own], which + len(names), own)


def _ranks(parts: list[tuple[list[str], Any]]) -> Any:
    import numpy

    ranks = {text: rank for rank, text in enumerate(sorted({text for texts, _ in parts for text in texts}))}
    return numpy.concatenate([numpy.array([ranks[t] for t in texts], numpy.int64)[which] for texts, which in parts])
