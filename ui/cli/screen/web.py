"""``barnabas ui --web``: the screen in a browser, with a process for each page."""

from __future__ import annotations

import asyncio
import os
import sys

import typer

from ....errors import install
from ...safe import visible
from ...web.server import PageServer, available, until_stopped
from ..common.address import parse
from ..common.failure import Failure
from ..protocol.api_page import page_named

NOT_HANDED_ON = frozenset({"web", "web_listen", "pages", "served", "plain", "record"})
"""Options that are the server's own; ``--record`` is done once, before the first page."""


def need_web() -> None:
    """Raise Failure, which names the extra to install, if it is missing."""
    if not available():
        raise Failure(f"--web needs textual-serve: {install('web')}")


def serve_pages(context: typer.Context, title: str, listen: str, most: int) -> None:
    """Serve the screen that this call asks for until Ctrl-C, and print its address."""
    from ....proxy.supervisor.interpreter import python

    need_web()
    host, port = parse(listen, "--web-listen")
    command = python("", "ui", f"--served={os.getpid()}")
    command += again(context)
    pages = PageServer(command, title=title, host=host, port=port, most=most, protocol_page=page_named)

    def ready(address: str) -> None:
        from ....proxy.control.auth import is_loopback

        typer.echo(address)
        changes = "changes are allowed" if context.params.get("allow_edit") else "read-only"
        print(
            f"barnabas: {visible(title)} in a browser, {changes}, {most} pages at most; Ctrl-C stops it", file=sys.stderr
        )
        if not is_loopback(host):
            print(
                f"barnabas: {visible(host)} can be reached from other machines, and the traffic is not encrypted: "
                "use a tunnel (ssh -L) to keep it private",
                file=sys.stderr,
            )
        sys.stdout.flush()

    try:
        asyncio.run(until_stopped(pages, ready))
    except OSError as error:
        raise Failure(
            f"cannot listen on {visible(host)} port {port}: {error.strerror or error}; --web-listen {host}:0 takes a free one"
        ) from None


def again(context: typer.Context) -> list[str]:
    """The options and arguments of this call, for another process. Secrets among them are on this command line already."""
    words: list[str] = []
    behind: list[str] = []
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        if parameter.name in NOT_HANDED_ON or value in (None, False, "", (), []):
            continue
        if parameter.param_type_name == "argument":
            behind.append(str(value))
        elif value is True:
            words.append(parameter.opts[0])
        else:
            many = value if isinstance(value, list | tuple) else [value]
            words += [f"{parameter.opts[0]}={one}" for one in many]
    return [*words, *(["--", *behind] if behind else [])]
