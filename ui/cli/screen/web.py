"""``barnabas ui --web``: the pages of a capture or a running proxy."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

import typer

from ....errors import install
from ...safe import visible
from ..common.address import parse
from ..common.failure import Failure
from ..protocol.api_page import page_named

if TYPE_CHECKING:
    from ...tui.model.session import Session
    from .first_frame import ScreenOptions


def need_web() -> None:
    """Raise Failure, which names the extra to install, if it is missing."""
    try:
        found = find_spec("nicegui")
    except ValueError:
        found = None
    if found is None:
        raise Failure(f"--web needs NiceGUI: {install('web')}")


def serve_pages(session: Session, listen: str, options: ScreenOptions) -> None:
    """Serve the pages of a session until Ctrl-C, and print their address."""
    from ...web.application import PageOptions, serve

    host, port = parse(listen, "--web-listen")

    def ready(address: str) -> None:
        from ....proxy.control.auth import is_loopback

        typer.echo(address)
        changes = "changes are allowed" if session.allow_edit else "read-only"
        print(f"barnabas: {session.title} in a browser, {changes}; Ctrl-C stops it", file=sys.stderr)
        if not is_loopback(host):
            print(
                f"barnabas: {visible(host)} can be reached from other machines, and the traffic is not encrypted: "
                "use a tunnel (ssh -L) to keep it private",
                file=sys.stderr,
            )
        sys.stdout.flush()

    given = PageOptions(options.get("theme", ""), options.get("filter", ""), options["settings"], options.get("schemas"))
    try:
        serve(session, host, port, given, protocol_page=page_named, ready=ready)
    except OSError as error:
        raise Failure(
            f"cannot listen on {visible(host)} port {port}: {error.strerror or error}; --web-listen {host}:0 takes a free one"
        ) from None
