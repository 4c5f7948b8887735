"""One sentence about findings: who fails, at what, since when, and why."""

from __future__ import annotations

import pytest
from barnabas.decoder.findings import Finding, Severity, summary

SEEN = "broker 1 closed the connection of client 'shop' (sarama 1.43) at 10.0.0.5"
ABOUT = {"client_id": "shop", "software": "sarama 1.43", "client": "10.0.0.5:40001", "api": "Fetch", "api_version": 12}


def sentence(severity: Severity = Severity.HIGH, seen: str = SEEN, count: int = 3, **about: object) -> str:
    found = Finding("closed", severity, seen, "", "", count=count, about=about or ABOUT, first_ns=7)
    return summary([Finding("other", Severity.INFO, "nothing", "", ""), found], lambda ns: f"T{ns}")


def test_a_failure() -> None:
    assert sentence() == (
        "Client 'shop' (sarama 1.43) fails at Fetch v12 since T7, 3 times. Likeliest cause: broker 1 closed the connection of the client."
    )


@pytest.mark.parametrize(
    ("about", "who"),
    [
        ({"client": "10.0.0.5:1"}, "The client at 10.0.0.5 fails at T7."),
        ({"broker": "k:9092"}, "Broker k:9092 fails at T7."),
        ({"topic": "orders"}, "Traffic fails at T7."),
        ({"clients": [{"client_id": "a"}, {"client_id": "b"}], "client_id": "a"}, "2 clients ('a', 'b') fail at T7."),
    ],
)
def test_who(about: dict[str, object], who: str) -> None:
    assert sentence(seen="it ended.", count=1, **about) == f"{who} Likeliest cause: it ended."


def test_nothing_above_info() -> None:
    assert sentence(Severity.INFO) == "" == summary([], str)


def test_effects_are_named() -> None:
    found = Finding("cut", Severity.LOW, "cut", "", "", effects=("closed", "churn"))
    assert summary([found], str) == "Nothing fails. What costs most: cut. It also explains churn, closed."
