"""``barnabas ui``: browse a capture or a running proxy on the screen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..common.completion import choices
from ..common.failure import Failure
from ..common.options import FilterText, Local, OptionalCapture, Registry, SchemaFiles
from .first_frame import ScreenOptions, screen_options, selection_of, show_capture

if TYPE_CHECKING:
    from ....proxy.control.startup import ControlAccess
    from ...attached_proxy import AttachedProxy

NEWEST = "newest"
"""What ``--attach`` without an address stands for."""


def ui(
    capture: OptionalCapture = None,
    filter_: FilterText = None,
    attach: Annotated[
        str,
        typer.Option("--attach", help="A running proxy: http://HOST:PORT, unix:PATH, or newest.", metavar="URL"),
    ] = "",
    feed: Annotated[
        str,
        typer.Option("--feed", help="Address of the live feed of a running proxy: summaries, no messages.", metavar="HOST:PORT"),
    ] = "",
    record: Annotated[
        Path | None,
        typer.Option("--record", help="Record into this directory from now on (with --attach).", metavar="DIR"),
    ] = None,
    allow_edit: Annotated[
        bool, typer.Option("--allow-edit", help="Allow changes of traffic and rules, with --attach.")
    ] = False,
    plain: Annotated[bool, typer.Option("--plain", help="Print plain lines instead of showing the screen.")] = False,
    theme: Annotated[
        str,
        typer.Option(
            "--theme",
            help="The colour theme (default: from the settings, or dark).",
            **choices("dark", "light", "mono"),
        ),
    ] = "",
    ascii: Annotated[bool, typer.Option("--ascii", help="Use only ASCII characters on the screen.")] = False,
    settings: Annotated[
        Path | None, typer.Option("--settings", help="Keys, theme, filters, colours: a TOML file.", metavar="FILE")
    ] = None,
    list_keys: Annotated[bool, typer.Option("--list-keys", help="List the actions with their keys.")] = False,
    schema: SchemaFiles = None,
    registry: Registry = None,
    web: Annotated[bool, typer.Option("--web", help="Show it in a browser: print the address to open there.")] = False,
    web_listen: Annotated[
        str,
        typer.Option("--web-listen", help="With --web: where browsers connect; port 0 takes a free port.", metavar="HOST:PORT"),
    ] = "127.0.0.1:0",
    local: Local = False,
) -> None:
    """Browse a capture or a running proxy: exchanges, connections, groups, versions, problems, latency, rules.

    A directory that a running proxy records into is shown live, as is a pcap file that tcpdump is still writing. Without a terminal, plain lines are printed.
    """
    options = screen_options(theme, ascii, settings)
    if filter_ is not None:
        from ..protocol.filter import compiled

        options["filter"] = str(compiled(filter_))  # its errors belong here, not on the screen
    if list_keys:
        _print_keys(options["settings"].keys)
        return
    if schema or registry is not None:
        from ..common.opening import schemas_of

        options["schemas"] = schemas_of(schema or [], registry)
    if web:
        from .web import need_web

        if plain:
            raise Failure("--web and --plain cannot be combined")
        need_web()
    if feed:
        if capture is not None or attach:
            raise Failure("--feed cannot be combined with a capture or --attach")
        _show_feed(feed, plain, web_listen if web else "", options)
        return
    if attach:
        if capture is not None:
            raise Failure("give a capture or --attach, not both: --attach finds the proxy's recording")
        from ...tui.app import on_terminal

        _show_proxy(attach, record, allow_edit, plain or not (web or on_terminal()), web_listen if web else "", options)
        return
    if capture is None:
        raise Failure("nothing to show: give a recording or a pcap file, or --attach newest for a running proxy")
    if record is not None or allow_edit:
        raise Failure("--record and --allow-edit need --attach")
    if not (plain or web):
        show_capture(capture, options)
        return
    from ..common.opening import open_or_fail

    if web:
        _serve_capture(capture, web_listen, options)
        return
    from ...tui.plain import plain_lines

    with open_or_fail(capture) as opened:
        plain_lines(opened, selection=selection_of(opened, options))


def _serve_capture(path: Path, listen: str, options: ScreenOptions) -> None:
    from ...tui.model.session import Session
    from .first_frame import opened_capture
    from .web import serve_pages

    opened = opened_capture(path)
    with opened.capture as capture:
        session = Session(capture, title=opened.title, live=opened.live, status=opened.status, grows=opened.grows)
        serve_pages(session, listen, options)


def _show_feed(feed: str, plain: bool, listen: str, options: ScreenOptions) -> None:
    from ...feed_capture import FeedListener
    from ...tui.app import on_terminal, run
    from ..proxy.feed import joined_token

    where, token = joined_token(feed)
    if plain or not (listen or on_terminal()):
        raise Failure("--feed needs a terminal; barnabas feed prints lines")
    receiver = FeedListener(where, token)
    receiver.start()
    capture = receiver.capture
    with capture:
        if listen:
            from ...tui.model.session import Session
            from .web import serve_pages

            try:
                serve_pages(Session(capture, title=capture.title, live=True, status=capture.status), listen, options)
            finally:
                receiver.stop()
            return
        run(capture, title=capture.title, live=True, status=capture.status, stop=receiver.stop, **options)


def _print_keys(changed: dict[str, str]) -> None:
    from ...tui.keys import KEYS, shown

    for key in KEYS:
        typer.echo(f"{key.id:<24} {shown(changed.get(key.id, key.keys)):<14} {key.words}")


def _find_proxy(url: str, record: Path | None) -> tuple[ControlAccess, AttachedProxy, Path]:
    from ....proxy.control import Control, ControlError
    from ...attached_proxy import AttachedProxy
    from ..proxy.control import access_to, failure_of

    found = access_to("" if url == NEWEST else url)
    try:
        proxy = AttachedProxy(Control(found.url, found.token))
        if record is not None:
            proxy.record(record)
    except ControlError as error:
        raise failure_of(error) from None
    return found, proxy, proxy.directory()


def _show_proxy(url: str, record: Path | None, allow_edit: bool, plain: bool, listen: str, options: ScreenOptions) -> None:
    from ...live import open_when_started
    from ...tui.app import BarnabasApp
    from ...tui.plain import plain_lines
    from ..common.opening import cannot_read

    _, proxy, directory = _find_proxy(url, record)
    with cannot_read(directory), open_when_started(directory) as opened:
        if plain:
            plain_lines(opened, follow=True, selection=selection_of(opened, options))
            return
        if listen:
            from ...tui.model.session import Session
            from .web import serve_pages

            session = Session(
                opened, title=proxy.title, live=True, status=proxy.status, control=proxy.control, allow_edit=allow_edit
            )
            proxy.add_to_log = session.add_to_log
            proxy.start()
            try:
                serve_pages(session, listen, options)
            finally:
                proxy.stop()
            return
        app = BarnabasApp(
            opened, title=proxy.title, live=True, status=proxy.status, stop=proxy.stop,
            control=proxy.control, allow_edit=allow_edit, **options,
        )  # fmt: skip
        proxy.add_to_log = app.session.add_to_log
        proxy.start()
        try:
            app.run()
        finally:
            app.stop_once()
