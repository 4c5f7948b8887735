"""What the shell completes. Each function imports what it needs: help and the completion of options do without it.

typer keeps those that begin as the word that is completed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict


class Choices(TypedDict):
    """Arguments of `typer.Option`."""

    metavar: str
    autocompletion: Callable[[], list[str]]


def choices(*words: str) -> Choices:
    """The placeholder and the completion of an option with these values, whose enum takes long to import."""
    return {"metavar": "|".join(words), "autocompletion": lambda: list(words)}


def api_names() -> list[str]:
    """Names of APIs, the names that they had, and drafts that never shipped."""
    from ....decoder.reference.definitions import drafts
    from ....decoder.schema import facts

    former = [former.name for former in facts.former_names() if former.kind == "api"]
    return [*(facts.api_name(key) for key in facts.api_keys()), *former, *drafts.names()]


def release_names() -> list[str]:
    """Names of Kafka releases."""
    from ....decoder.reference.releases import releases

    return list(releases(roles=True))


def explained_names() -> list[str]:
    """Everything that `barnabas explain` explains."""
    from ....decoder.reference import explain
    from ....decoder.schema.facts import former_names

    return [*explain.names(), *(former.name for former in former_names()), *explain.field_names()]


def recipe_names() -> list[str]:
    """Names of rule recipes."""
    from ....plugins.rules.recipes import RECIPES

    return [each.name for each in RECIPES]


def table_names() -> list[str]:
    """Names of the tables of a capture."""
    from ....captures.tables import DESCRIBED

    return list(DESCRIBED)


def detector_names(incomplete: str) -> list[str]:
    """Ids of findings, behind those that are there, with commas."""
    from ....decoder.findings import detectors

    before = incomplete[: incomplete.rfind(",") + 1]
    return [before + kind.id for kind in detectors()]


def filter_words(incomplete: str) -> list[str]:
    """Filters that begin so."""
    from ....decoder.filter import complete

    return [incomplete[: found.start] + found.text for found in complete(incomplete)]
