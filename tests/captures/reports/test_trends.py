"""Which periods are compared."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest
from barnabas.captures.reports.trends import periods

SECOND = 10**9
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86400 * SECOND
END = 1_790_000_000 * SECOND


class Exchanges:
    """An engine with exchanges at these times."""

    tables = ("exchanges",)

    def __init__(self, times: list[int]) -> None:
        self.connection = duckdb.connect()
        self.connection.execute("CREATE TABLE exchanges (time_ns BIGINT)")
        if times:
            self.connection.executemany("INSERT INTO exchanges VALUES (?)", [[each] for each in times])

    def query(self, sql: str) -> list[dict[str, Any]]:
        result = self.connection.execute(sql)
        names = [column[0] for column in result.description]
        return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def every(step: int, length: int) -> list[int]:
    """Times up to END."""
    return list(range(END - length, END + 1, step))


@pytest.mark.parametrize(
    ("times", "length", "words"),
    [
        (every(HOUR, 20 * DAY), 7 * DAY, "7 days"),
        (every(HOUR, 11 * DAY), 7 * DAY, "7 days"),
        (every(HOUR, 9 * DAY), DAY, "24 hours"),  # of the week before, only two days
        (every(MINUTE, 2 * HOUR), HOUR, "hour"),
        (every(SECOND, 3 * MINUTE), MINUTE, "minute"),
        ([END - 30 * DAY, *every(SECOND, 3 * MINUTE)], MINUTE, "minute"),  # nothing was recorded in the week before
        (every(SECOND, 30 * SECOND), 0, "minute"),
        ([], 0, "minute"),
    ],
)
def test_the_longest_periods_that_can_be_compared(times: list[int], length: int, words: str) -> None:
    found = periods(Exchanges(times))
    end = END if times else 0
    assert found == (end - 2 * length, end - length, end, words)
