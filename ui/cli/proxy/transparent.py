"""``barnabas transparent``: the nftables rules that redirect clients' connections to the proxy."""

from __future__ import annotations

import os
import shlex
import sys
from typing import Annotated

import typer

from ....proxy.addressing import netfilter
from ....proxy.addressing.netfilter import FAMILIES, Interceptor, NetfilterError
from ....proxy.addressing.transparent import MODES
from ..common.failure import Failure

app = typer.Typer(
    help="Bring connections to brokers to the proxy without changing a client: nftables rules (Linux, root).",
    no_args_is_help=True,
)

_DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would be done; needs no rights.")]


@app.command()
def up(
    port: Annotated[
        list[int] | None,
        typer.Option("--port", help="A port of the brokers; may be given several times.", metavar="PORT"),
    ] = None,
    to: Annotated[int, typer.Option("--to", help="The port that the proxy listens on.", metavar="PORT")] = 19092,
    mode: Annotated[
        str, typer.Option("--mode", help="As given to the proxy: redirect or tproxy.", metavar="MODE")
    ] = "redirect",
    local: Annotated[
        bool, typer.Option("--local/--no-local", help="Also take connections that are made on this machine.")
    ] = True,
    exclude_uid: Annotated[
        list[str] | None,
        typer.Option(
            "--exclude-uid",
            help="Let connections of this user pass: needed for local connections when the proxy runs without "
            "CAP_NET_ADMIN, with the user it runs as. May be given several times.",
            metavar="USER",
        ),
    ] = None,
    family: Annotated[
        str, typer.Option("--family", help="inet (IPv4 and IPv6), ip or ip6.", metavar="FAMILY")
    ] = "inet",
    dry_run: _DryRun = False,
) -> None:
    """Set the rules, and print them.

    From then on connections to the brokers' ports come to the proxy, which goes on to where they were meant to go:
    barnabas proxy --transparent MODE. Without a proxy they are refused.
    """
    if mode not in MODES:
        raise Failure(f"--mode is {' or '.join(MODES)}, not {mode!r}")
    if family not in FAMILIES:
        raise Failure(f"--family is {', '.join(FAMILIES)}, not {family!r}")
    ports = tuple(port or [9092])
    for number in (*ports, to):
        if not 0 < number < 65536:
            raise Failure(f"{number} is no port: ports go from 1 to 65535")
    if to in ports:
        raise Failure(f"--to {to} is among the brokers' ports: the proxy needs a port of its own")
    wanted = Interceptor(ports, to, mode, local, tuple(map(_user, exclude_uid or [])), family)
    if not dry_run:
        try:
            if netfilter.is_up():
                raise Failure("the rules are set already: `barnabas transparent down` removes them")
            netfilter.up(wanted)
        except NetfilterError as error:
            raise _failure(error) from None
    typer.echo(wanted.rules(), nl=False)
    for command in wanted.routes():
        typer.echo("ip " + " ".join(command))


@app.command()
def down(dry_run: _DryRun = False) -> None:
    """Remove what `up` set, and nothing else."""
    try:
        if dry_run:
            typer.echo(f"nft delete table {netfilter.TABLE}")
            return
        done = netfilter.down()
    except NetfilterError as error:
        raise _failure(error) from None
    if not done:
        raise Failure("the rules are not set: nothing to remove")
    for line in done:
        typer.echo(line)


def _user(name: str) -> int:
    if name.isdecimal():
        return int(name)
    import pwd

    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        raise Failure(f"--exclude-uid {name}: this machine knows no such user; give a name or a number") from None


def _failure(error: NetfilterError) -> Failure:
    if not error.root:
        return Failure(str(error))
    again = shlex.join(["sudo", os.path.abspath(sys.argv[0]), *sys.argv[1:]])
    return Failure(f"{error}: {again}")
