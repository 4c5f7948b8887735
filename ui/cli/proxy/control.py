"""``barnabas control``: inspect and control a running proxy over its control API."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import TyperGroup

from ... import times
from ...safe import visible
from ..common.failure import Failure, read_text
from ..common.option_groups import with_option_groups
from ..common.options import FilterText, Local
from .options import RecordingOptions, token_in

if TYPE_CHECKING:
    from ....proxy.control import Control, ControlError
    from ....proxy.control.startup import ControlAccess

Answer = TypeVar("Answer")
WHICH = ("--url", "--token-file")


class _OptionsAnywhere(TyperGroup):
    """Accepts --url and --token-file behind the subcommand as well as before it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        front: list[str] = []
        rest: list[str] = []
        words = iter(args[:end])
        for word in words:
            name, equals, _ = word.partition("=")
            if name not in WHICH:
                rest.append(word)
            elif equals or (value := next(words, None)) is None:
                front.append(word)
            else:
                front += [word, value]
        if front and front[-1] in WHICH:  # without its value: it must not take the command for that
            return super().parse_args(ctx, front[-1:])
        return super().parse_args(ctx, [*front, *rest, *args[end:]])


app = typer.Typer(
    cls=_OptionsAnywhere,
    help="Inspect and control a running proxy over its control API (docs/control.md).",
    invoke_without_command=True,
)
URL_VARIABLE, TOKEN_VARIABLE = "BARNABAS_CONTROL_URL", "BARNABAS_CONTROL_TOKEN"


@dataclass(slots=True)
class _Target:
    """The proxy that the options choose."""

    url: str = ""
    token_file: Path | None = None


_target = _Target()


@app.callback()
def _which(
    context: typer.Context,
    url: Annotated[
        str,
        typer.Option(
            "--url", help="http://HOST:PORT or unix:PATH (default: your newest running proxy).", envvar=URL_VARIABLE, metavar="URL"
        ),
    ] = "",
    token_file: Annotated[
        Path | None, typer.Option("--token-file", help=f"A file with the token (or set {TOKEN_VARIABLE}).", metavar="FILE")
    ] = None,
) -> None:
    _target.url, _target.token_file = url, token_file
    if context.invoked_subcommand is None:
        status()


def access() -> ControlAccess:
    """Access to the proxy that the options choose. Raises Failure if none runs."""
    url, file = _target.url, _target.token_file
    return access_to(url, token_in(file) if file is not None else "", str(file or ""))


def access_to(url: str, token: str = "", file: str = "") -> ControlAccess:
    """Access to the proxy at `url` ("": the newest running one); a missing token is looked up. Raises Failure."""
    from ....proxy.control.startup import ControlAccess, running

    token = token or os.environ.get(TOKEN_VARIABLE, "")
    known = running()
    if not url:
        if not known:
            raise Failure(
                "no running proxy offers a control API: start one with barnabas proxy --control 127.0.0.1:8090"
            )
        return known[0]
    if "://" not in url and not url.startswith("unix:"):
        url = f"http://{url}"
    for each in known:
        if each.url == url and not token:
            return each
    return ControlAccess(url, token, file)


def _control() -> Control:
    from ....proxy.control import Control

    found = access()
    return Control(found.url, found.token)


def _ask(call: Callable[[Control], Answer]) -> Answer:
    from ....proxy.control import ControlError

    try:
        return call(_control())
    except ControlError as error:
        raise failure_of(error) from None


def failure_of(error: ControlError) -> Failure:
    """The error as a user of commands understands it."""
    if error.status == 401:
        return Failure(
            "the token is missing or wrong: the proxy printed the token's file when it started; "
            f"barnabas control --token-file FILE ..., or set {TOKEN_VARIABLE}"
        )
    return Failure(str(error))


def _json(value: object) -> None:
    from ....captures.export.text import json_visible

    typer.echo(json_visible(json.dumps(value, ensure_ascii=not sys.stdout.isatty())))


@app.command()
def status(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, as the API returns it.")] = False) -> None:
    """Show the state of the proxy, and how to reach its API with curl."""
    from ....proxy.control import Control

    found = access()
    answer = _ask(Control.status)
    if as_json:
        _json(answer)
        return
    counts, lost = answer["counts"], answer["lost"]
    where = "{}:{}"
    typer.echo(f"barnabas {answer['version']}, up {answer['uptime']:.0f} s")
    typer.echo(f"  clients     {where.format(*answer['listen'])} for {where.format(*answer['upstream'])}")
    typer.echo(
        f"  traffic     {counts['connections']} connections, {counts['exchanges']} exchanges, {counts['errors']} errors"
    )
    typer.echo(
        f"  not seen    {lost['observer_bytes']} B by the observer, {lost['inspector_bytes']} B by the inspector"
    )
    recording = answer["recording"] or {}
    typer.echo(f"  recording   {visible(recording.get('directory') or 'no')}")
    if recorder := recording.get("flight"):
        typer.echo(
            f"  flight      {visible(recorder['directory'])}: {recorder['written']} written, {recorder['counted']} only counted"
        )
    typer.echo(f"  rules       {answer['rules']}, frames held: {answer['held']}")
    dead = [name for name, process in answer["processes"].items() if not process["alive"]]
    if dead:
        typer.echo(f"  ended       {', '.join(dead)}")
    for each in answer["insecure"]:
        typer.echo(f"  insecure    {each}")
    typer.echo("")
    for line in curl_lines(found):
        typer.echo(line)


def curl_lines(found: ControlAccess) -> list[str]:
    """How to ask with curl."""
    if found.url.startswith("unix:"):
        return [f"curl --unix-socket {found.url.removeprefix('unix:')} http://localhost/v1/status"]
    token = f'-H "Authorization: Bearer $(cat {found.token_file or "TOKENFILE"})"'
    return [f"curl {token} {found.url}/v1/status"]


@app.command()
def exchanges(
    filter_: FilterText = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep running, and print new exchanges; Ctrl-C stops it.")
    ] = False,
    limit: Annotated[
        int, typer.Option("--limit", "-n", help="At most this many, the newest.", min=1, max=1000, metavar="N")
    ] = 20,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per exchange, with request and response.")
    ] = False,
    local: Local = False,
) -> None:
    """Print the newest exchanges and the requests that wait for a response; with --follow, also new exchanges."""
    from ....proxy.control import ControlError

    wanted = filter_ or ""
    zone = times.zone_name() if wanted else ""
    page = _ask(lambda control: control.exchange_page(wanted, limit=limit, bodies=as_json, zone=zone))
    for each in page["exchanges"] + page["pending"]:
        _exchange(each, as_json)
    if follow:
        try:
            for each in _control().follow(wanted, since=page["next"], bodies=as_json, zone=zone):
                _exchange(each, as_json)
        except ControlError as error:
            raise failure_of(error) from None


def _exchange(each: dict[str, Any], as_json: bool) -> None:
    if as_json:
        _json(each)
        return
    stamp = times.moment(each["time_ns"] or 0)
    latency = f"{each['latency_ns'] / 1e6:.3f} ms" if each["latency_ns"] is not None else each["state"]
    if "pending_ns" in each:
        latency = f"waiting for {each['pending_ns'] / 1e9:.1f} s"
    line = f"{each.get('id', '-'):>7} {stamp} {each['client']} {each['api']} v{each['api_version']} {latency}"
    words = [line, each["error"] or "", *each.get("notes", ())]
    print(visible("  ".join(filter_ for filter_ in words if filter_)), flush=True)


@app.command()
def rules(
    add: Annotated[Path | None, typer.Option("--add", help="Add the rules of a file.", metavar="FILE")] = None,
    remove: Annotated[str, typer.Option("--remove", help="Remove a rule.", metavar="NAME")] = "",
    enable: Annotated[str, typer.Option("--enable", help="Enable a rule.", metavar="NAME")] = "",
    disable: Annotated[str, typer.Option("--disable", help="Disable a rule.", metavar="NAME")] = "",
    hits: Annotated[str, typer.Option("--hits", help="List a rule's newest hits instead.", metavar="NAME")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
    local: Local = False,
) -> None:
    """List the rules and how often each has fired; with options, change them first."""
    from ....proxy.control import Control, ControlError

    if add is not None:
        text = read_text(add, str(add))
        try:
            _control().add_rule(text)
        except ControlError as error:
            line, column = error.details.get("line"), error.details.get("column")
            raise Failure(f"{add}:{line}:{column}: {error}" if line else str(failure_of(error))) from None
    if remove:
        _ask(lambda control: control.remove_rule(remove))
    if enable:
        _ask(lambda control: control.enable_rule(enable))
    if disable:
        _ask(lambda control: control.enable_rule(disable, False))
    if hits:
        for each in _ask(lambda control: control.hits(hits, limit=1000)):
            _hit(each, as_json)
        return
    for each in _ask(Control.rules):
        if as_json:
            _json(each)
            continue
        state = "on " if each["enabled"] else "off"
        typer.echo(visible(f"{state}  {each['hits']:>6} hits  {each['name']}: {each['source']['match']}"))


def _hit(each: dict[str, Any], as_json: bool) -> None:
    """A hit, with the number that `barnabas control exchanges` shows in front of its exchange."""
    if as_json:
        _json(each)
        return
    stamp = times.moment(each["time_ns"])
    exchange = f"exchange {each['exchange']}" if each["exchange"] is not None else "no finished exchange"
    who = f"{each['client']} {each['client_id'] or ''}".strip()
    what = f"{each['api']} v{each['api_version']}: {'; '.join(each['done'])}"
    typer.echo(visible(f"{each['hit']:>6} {stamp} conn {each['connection']} {who} {what} ({exchange})"))


@app.command()
def held() -> None:
    """Print the frames that wait for a decision, one JSON object per line."""
    from ....proxy.control import Control

    for each in _ask(Control.held):
        _json(each)


@app.command()
@with_option_groups
def record(
    directory: Annotated[Path | None, typer.Argument(help="Start recording into this directory.", metavar="DIR")] = None,
    rotate: Annotated[bool, typer.Option("--rotate", help="Close the segment and start the next.")] = False,
    stop: Annotated[bool, typer.Option("--stop", help="Stop recording.")] = False,
    *,
    recording: RecordingOptions,
) -> None:
    """Start, rotate or stop the recording; without any of these, show its directory.

    Rotation and retention stay as set when the proxy started, unless these options change them.
    """
    from ....proxy.control import Control

    if (directory is not None) + rotate + stop > 1:
        raise Failure("give only one of these: a directory to record into, --rotate, or --stop")
    kept = {name: value for name, value in asdict(recording.config()).items() if value}
    if kept and directory is None:
        raise Failure("--rotate-size, --rotate-time, --keep-size and --keep-time need a directory to record to")
    if directory is not None:
        answer = _ask(lambda control: control.start_recording(str(directory.absolute()), **kept))
    elif rotate:
        answer = _ask(Control.rotate_recording)
    elif stop:
        answer = _ask(Control.stop_recording)
    else:
        answer = _ask(Control.recording)
    typer.echo(f"recording to {visible(answer['directory'])}" if answer["recording"] else "nothing is being recorded")


@app.command()
def flight(
    label: Annotated[str, typer.Argument(help="Prefix of the flight recording's name.", metavar="LABEL")] = "",
    reason: Annotated[str, typer.Option("--reason", help="The reason, stored in the flight recording.", metavar="TEXT")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, as the API returns it.")] = False,
) -> None:
    """Write a flight recording: the traffic kept so far, and what follows shortly after."""
    answer = _ask(lambda control: control.write_flight(label, reason))
    if as_json:
        _json(answer)
    elif answer["flight"] is None:
        raise Failure(f"no flight recording was written: {visible(answer['text'])}")
    else:
        typer.echo(f"{visible(answer['flight'])}: {visible(answer['text'])}")


@app.command()
def stop() -> None:
    """Stop the proxy; responses in flight are still delivered."""
    from ....proxy.control import Control

    _ask(Control.shutdown)
