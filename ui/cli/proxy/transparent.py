"""``barnabas transparent``: the nftables rules that redirect clients' connections to the proxy."""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ..common.completion import choices
from ..common.failure import Failure

if TYPE_CHECKING:
    from ....proxy.relay.addressing.netfilter import NetfilterError

app = typer.Typer(
    help="Redirect broker connections to the proxy with nftables rules, without changing clients (Linux, root).",
    no_args_is_help=True,
)

_DryRun = Annotated[bool, typer.Option("--dry-run", help="Print what would be done; needs no privileges.")]


@app.command()
def up(
    port: Annotated[list[int], typer.Option("--port", help="A port of the brokers. May be repeated.", metavar="N")],
    proxy_port: Annotated[int, typer.Option("--proxy-port", help="The port that the proxy listens on.", metavar="N")] = 19092,
    mode: Annotated[
        str, typer.Option("--mode", help="The mode given to the proxy with --transparent.", **choices("redirect", "tproxy"))
    ] = "redirect",
    local_clients: Annotated[
        bool, typer.Option("--local-clients/--no-local-clients", help="Also redirect connections from this machine.")
    ] = True,
    exclude_uid: Annotated[
        list[str] | None,
        typer.Option(
            "--exclude-uid",
            help="Do not redirect connections of this user. Needed for --local-clients when the proxy runs without CAP_NET_ADMIN: "
            "name the user it runs as. May be repeated.",
            metavar="USER",
        ),
    ] = None,
    family: Annotated[
        str, typer.Option("--family", help="inet covers IPv4 and IPv6.", **choices("inet", "ip", "ip6"))
    ] = "inet",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Set the rules without asking.")] = False,
    dry_run: _DryRun = False,
) -> None:
    """Show the firewall rules, ask for confirmation, and set them.

    From then on, connections to the brokers' ports reach the proxy, which connects to their original destinations:
    barnabas proxy --transparent MODE. While no proxy runs, they are refused.
    """
    from ....proxy.relay.addressing import netfilter
    from ....proxy.relay.addressing.netfilter import FAMILIES, Interceptor, NetfilterError
    from ....proxy.relay.addressing.transparent import MODES

    if mode not in MODES:
        raise Failure(f"--mode is {' or '.join(MODES)}, not {mode!r}")
    if family not in FAMILIES:
        raise Failure(f"--family is {', '.join(FAMILIES)}, not {family!r}")
    ports = tuple(port)
    for number in (*ports, proxy_port):
        if not 0 < number < 65536:
            raise Failure(f"{number} is not a port: ports are 1 to 65535")
    if proxy_port in ports:
        raise Failure(f"--proxy-port {proxy_port} is among the brokers' ports: the proxy needs a port of its own")
    wanted = Interceptor(ports, proxy_port, mode, local_clients, tuple(map(_user, exclude_uid or [])), family)
    try:
        if not dry_run and netfilter.is_up():
            raise Failure("the rules are already set: `barnabas transparent down` removes them")
        if not (dry_run or yes or sys.stdin.isatty()):
            raise Failure("this changes the firewall, and there is no terminal to confirm it on: add --yes, or --dry-run to see the rules")
        typer.echo(wanted.rules(), nl=False)
        for command in wanted.routes():
            typer.echo("ip " + " ".join(command))
        if dry_run:
            return
        if not (yes or typer.confirm("Set these rules?", err=True)):
            raise Failure("nothing was changed")
        netfilter.up(wanted)
    except NetfilterError as error:
        raise _failure(error) from None


@app.command()
def down(dry_run: _DryRun = False) -> None:
    """Remove what `up` set, and nothing else."""
    from ....proxy.relay.addressing import netfilter
    from ....proxy.relay.addressing.netfilter import NetfilterError

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
        raise Failure(f"--exclude-uid {name}: there is no such user; give a name or a number") from None


def _failure(error: NetfilterError) -> Failure:
    if not error.root:
        return Failure(str(error))
    again = shlex.join(["sudo", os.path.abspath(sys.argv[0]), *sys.argv[1:]])
    return Failure(f"{error}: {again}")
