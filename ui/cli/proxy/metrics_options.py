"""The options of ``barnabas proxy`` for the live feed and the metrics, and the settings made of them."""

from __future__ import annotations

import atexit
import os
from pathlib import Path
from typing import Annotated

import typer

from ....proxy.metrics.feed.layout import MAX_TOKEN
from ....proxy.metrics.settings import BY, MeterConfig, Metering, leave_token
from ..common.address import parse, show
from ..common.failure import Failure

TOKEN_VARIABLE = "BARNABAS_FEED_TOKEN"
_PANEL = "Live feed and metrics"


def _option(name: str, words: str, metavar: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = typer.Option(
        name, help=words, metavar=metavar, rich_help_panel=_PANEL, show_default=False
    )
    return option


Feed = Annotated[
    str, _option("--feed", "Send summaries of exchanges to subscribers (UDP); read it with barnabas feed.", "HOST:PORT")
]
FeedTokenFile = Annotated[
    Path | None,
    _option(
        "--feed-token-file", f"What subscribers must know (or set {TOKEN_VARIABLE}); without, a new one is made.", "FILE"
    ),
]
Metrics = Annotated[str, _option("--metrics", "Serve GET /metrics for Prometheus.", "HOST:PORT")]
MetricsBy = Annotated[
    list[str] | None, _option("--metrics-by", "Count these apart, too: client, topic. May be repeated.", "WHAT")
]
Statsd = Annotated[str, _option("--statsd", "Send metrics to this StatsD server every second (UDP).", "HOST:PORT")]
StatsdPrefix = Annotated[
    str, _option("--statsd-prefix", "What their names begin with (default barnabas).", "NAME")
]
StatsdTags = Annotated[
    bool, typer.Option("--statsd-tags", help="With tags, as DogStatsD has them.", rich_help_panel=_PANEL)
]


def meter_config(
    *,
    feed: str,
    token_file: Path | None,
    metrics: str,
    by: list[str] | None,
    statsd: str,
    prefix: str,
    tags: bool,
) -> MeterConfig | None:
    """None when nothing of it is asked for; Failure for what makes no sense."""
    for what in by or ():
        if what not in BY:
            raise Failure(f"--metrics-by {what!r} is not known: give {' or '.join(BY)}")
    for option, given, needed in (
        ("--feed-token-file", token_file, feed),
        ("--metrics-by", by, metrics),
        ("--statsd-prefix", prefix, statsd),
        ("--statsd-tags", tags, statsd),
    ):
        if given and not needed:
            raise Failure(f"{option} says how: add {_NEEDS[option]} HOST:PORT")
    config = MeterConfig(
        feed=parse(feed, "--feed") if feed else None,
        feed_token=read_token(token_file) or "" if feed else "",
        metrics=parse(metrics, "--metrics") if metrics else None,
        metrics_by=tuple(by or ()),
        statsd=parse(statsd, "--statsd", port=8125) if statsd else None,
        statsd_prefix=prefix or "barnabas",
        statsd_tags=tags,
    )
    return config if config.wanted else None


_NEEDS = {
    "--feed-token-file": "--feed",
    "--metrics-by": "--metrics",
    "--statsd-prefix": "--statsd",
    "--statsd-tags": "--statsd",
}


def read_token(path: Path | None) -> str | None:
    """The token of a file, or of the environment; None when there is neither."""
    if path is None:
        return os.environ.get(TOKEN_VARIABLE) or None
    try:
        token = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "no text"
        raise Failure(f"the token of {path} cannot be read: {why}") from None
    if not 0 < len(token.encode()) <= MAX_TOKEN:
        raise Failure(f"{path} holds no token: give one line of up to {MAX_TOKEN} characters")
    return token


def advice(meter: Metering | None, config: MeterConfig | None) -> str | None:
    """How the feed is read, once it stands; a token that was made is left where this user's programs find it."""
    if meter is None or config is None or meter.feed is None:
        return None
    if config.feed_token:
        return f"live feed: barnabas feed {show(meter.feed)} (with the same token)"
    path = leave_token(meter.feed[1], meter.feed_token)
    if path is not None:
        atexit.register(path.unlink, missing_ok=True)
    else:
        return f"the token of the live feed cannot be left for barnabas feed: set {TOKEN_VARIABLE} for both"
    return f"live feed: barnabas feed {show(meter.feed)} (elsewhere, or as another user: with the token in {path})"
