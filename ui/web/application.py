"""The application: a session with its pages and their server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from nicegui import app

from ...decoder.values import SchemaSource
from ..tui.model.session import Session
from ..tui.model.settings import ScreenSettings
from .pages import (
    connections,
    exchange,
    exchanges,
    groups,
    held,
    ladder,
    latency,
    log,
    partitions,
    problems,
    rules,
    throughput,
    versions,
)
from .queries import Queries
from .server import PageServer, ProtocolPage
from .site import Site
from .work import Work

ASSETS = ("page.css", "page.js")
_PAGES = (exchanges, exchange, connections, ladder, groups, versions, problems, latency, throughput, partitions, rules, log, held)
_DARK = {"dark": True, "light": False, "mono": False}


@dataclass(frozen=True)
class PageOptions:
    """`theme`: a name of `THEMES`, "" for the browser's. `filter`: of the exchanges that are shown first."""

    theme: str = ""
    filter: str = ""
    settings: ScreenSettings = field(default_factory=ScreenSettings)
    schemas: SchemaSource | None = None


def serve(
    session: Session, host: str, port: int, options: PageOptions, *, protocol_page: ProtocolPage, ready: Callable[[str], None]
) -> None:
    """Serve the pages of a session until Ctrl-C, and call `ready` with their address. Raises `OSError` where it cannot listen."""
    theme = options.theme or options.settings.theme
    server = PageServer(host, port, title="Barnabas", dark=_DARK.get(theme), first=options.filter, protocol_page=protocol_page)
    queries = Queries(session, options.settings)
    work = Work(session, queries)
    site = Site(session, queries, work, options.settings, options.schemas, server.access.folder)
    for module in _PAGES:
        module.register(site)
    for name in ASSETS:
        app.add_static_file(local_file=Path(__file__).with_name(name), url_path=f"/static/{name}")
    try:
        asyncio.run(server.serve(ready, work.run))
    finally:
        session.held.release_own()
        session.stop()
