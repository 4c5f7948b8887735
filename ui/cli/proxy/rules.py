"""``barnabas rules``: check fault rules, try them on a capture, and print recipes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...safe import visible
from ..common.completion import recipe_names
from ..common.failure import Failure
from ..common.opening import open_or_fail
from ..common.options import CapturePath
from ..common.output import print_json

if TYPE_CHECKING:
    from ....captures import Capture
    from ....decoder import Exchange
    from ....plugins.actions.fault_plan import FaultPlan
    from ....plugins.rules.rule_engine import RuleEngine
    from ....plugins.rules.rules import Rule, RuleError

app = typer.Typer(
    help="Fault rules: validate a file, try it on a capture, list recipes.",
    no_args_is_help=True,
)


def read(path: Path) -> list[Rule]:
    """The rules of a file. Raises Failure, which points at the error."""
    from ....plugins.rules.rules import RuleError, load_rules

    try:
        return load_rules(path)
    except RuleError as error:
        raise Failure(f"{visible(str(error))}{_excerpt(path, error)}") from None


def _excerpt(path: Path, error: RuleError) -> str:
    """The line that is wrong, with a caret below the place."""
    try:
        line = path.read_text("utf-8", "replace").splitlines()[error.line - 1]
    except (OSError, IndexError):
        return ""
    return f"\n  {visible(line)}\n  {' ' * (error.column - 1)}^" if line.strip() else ""


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="A rules file, YAML, JSON or TOML.", metavar="FILE")],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object in the control API's format.")
    ] = False,
) -> None:
    """Validate a rules file, and show what each rule does. The exit status is 2 if the file is invalid."""
    from ....decoder.schema import facts
    from ....plugins.actions.answering import Error
    from ....plugins.actions.versions import Pretend
    from ....plugins.conditions.reach import shadowed

    rules = read(file)
    if as_json:
        print_json({"rules": [rule.to_dict() for rule in rules]})
        return
    for rule in rules:
        typer.echo(f"{visible(rule.name)}: {visible(rule.match)}")
        typer.echo(f"    {_reach(rule)}; {visible(str(yaml_line(rule)))}")
        for each in (each for action in rule.do if isinstance(action, Pretend) for each in action.profile.follows.values()):
            typer.echo(f"    and with it {each.text}: {each.reason}")
    for rule, other in shadowed(rules):
        typer.echo(
            f"warning: {visible(rule.name)!r} never fires: {visible(other.name)!r} "
            f"{'comes first, ' if rules.index(other) < rules.index(rule) else 'is decided by the request, '}"
            f"always fires, and matches everything that {visible(rule.name)!r} matches; move {visible(other.name)!r} "
            "down, or give it a 'when'"
        )
    produce = facts.api_key("Produce")
    for rule in rules:
        keys = rule.filter.apis()
        if keys is not None and produce not in keys:
            continue
        if not any(isinstance(each, Error) and each.repeats_batches for each in rule.do):
            continue
        typer.echo(
            f"warning: {visible(rule.name)!r} can duplicate records in the log: the broker appends the batch, and an "
            "idempotent producer may send it again as a new one; use 'broker: skipped' (docs/rules.md, Idempotent producers)"
        )
    typer.echo(f"ok: {len(rules)} rule{'s' if len(rules) != 1 else ''}")


def _reach(rule: Rule) -> str:
    from ....decoder.schema import facts

    keys = rule.filter.apis()
    if keys is None:
        about = "requests of every API are examined"
    else:
        names = sorted(facts.api_name(key) for key in keys)
        about = (
            f"{', '.join(names[:6])}{f' and {len(names) - 6} more' if len(names) > 6 else ''}"
            if names
            else "never true"
        )
    return about + (", decided when the response arrives" if rule.late else "")


def yaml_line(rule: Rule) -> str:
    """What a rule does, in one line of YAML."""
    import yaml

    text = yaml.safe_dump(rule.to_dict()["do"], default_flow_style=True, sort_keys=False, width=10_000)
    return str(text).strip()


@app.command("try")
def try_(
    capture: CapturePath,
    file: Annotated[Path, typer.Option("--rules", help="Rules (YAML, JSON or TOML).", metavar="FILE")],
    limit: Annotated[int, typer.Option("--limit", help="At most this many exchanges of each rule.", min=0, metavar="N")] = 5,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per exchange that a rule would have changed.")
    ] = False,
) -> None:
    """Show what rules would have done to the exchanges of a capture: which match, which fire, and what happens then.

    Nothing is sent. Rules count the requests in order, as in the proxy. How clients would have reacted to a fault
    is not known.
    """
    from ....plugins.rules.rule_engine import RuleEngine

    rules = read(file)
    engine = RuleEngine(rules, now_ns=0)
    shown: dict[str, list[str]] = {rule.name: [] for rule in rules}
    total = 0
    with open_or_fail(capture) as opened:
        for number, exchange, faults in _outcomes(engine, opened):
            total += 1
            if faults is None:
                continue
            if as_json:
                found = exchange.to_dict(bodies=False) | {
                    "number": number,
                    "rule": faults.rule,
                    "hit": faults.hits,
                    "done": faults.notes,
                }
                print_json(found)
            elif len(shown[faults.rule]) < limit:
                client = f" {visible(exchange.client_id)}" if exchange.client_id else ""
                shown[faults.rule].append(
                    f"    #{number} conn {exchange.connection}{client} {exchange.api} v{exchange.api_version}: "
                    f"{visible('; '.join(faults.notes))}"
                )
    if as_json:
        return
    for rule in rules:
        matched, hits = engine.counts()[rule.name]
        typer.echo(
            f"{visible(rule.name)}: {hits} of {total} exchanges would have been changed; "
            f"{matched} matched while the rule could fire"
        )
        for line in shown[rule.name]:
            typer.echo(line)
        if hits > len(shown[rule.name]) and limit:
            typer.echo(f"    and {hits - len(shown[rule.name])} more")


def _outcomes(engine: RuleEngine, capture: Capture) -> Iterator[tuple[int, Exchange, FaultPlan | None]]:
    """(number as `ui` shows it, exchange, what would have happened to it) of every exchange with a request."""
    from ....decoder import Exchange
    from ....decoder.connection.exchange import State

    begun = False
    for number, exchange in capture.numbered_exchanges():
        if exchange.request is None:
            continue
        if not begun:
            # Windows of time count from the first request.
            begun = True
            engine.begin(exchange.request_time_ns or 0)
        if exchange.topics is None:
            exchange.topics = engine.cluster_view.topics
        if exchange.response is not None:
            engine.learn(exchange)
        request = Exchange(
            connection=exchange.connection, client=exchange.client, broker=exchange.broker, api_key=exchange.api_key,
            api_version=exchange.api_version, correlation_id=exchange.correlation_id, client_id=exchange.client_id,
            request=exchange.request, request_time_ns=exchange.request_time_ns, topics=exchange.topics, about=exchange.about,
        )  # fmt: skip
        faults: FaultPlan | None = engine.decide(request)
        if faults is None and exchange.state is State.PAIRED:
            faults = engine.judge(exchange)
        yield number + 1, exchange, faults


@app.command()
def recipes(
    name: Annotated[
        str | None,
        typer.Argument(help="Print this recipe as a rules file.", metavar="NAME", autocompletion=recipe_names),
    ] = None,
    topic: Annotated[str, typer.Option("--topic", help="For this topic only.", metavar="NAME")] = "",
    group: Annotated[str, typer.Option("--group", help="For this group only.", metavar="NAME")] = "",
    client: Annotated[str, typer.Option("--client", help="For this client id only.", metavar="NAME")] = "",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object in the control API's format; without NAME: one per recipe.")
    ] = False,
) -> None:
    """List rule recipes, or print one as a rules file: barnabas rules recipes leader-election --topic orders > rules.yaml"""
    import yaml

    from ....decoder.filter.language.errors import nearest
    from ....plugins.rules.recipes import RECIPES, find

    if name is None:
        if as_json:
            for each in RECIPES:
                found = {"name": each.name, "about": each.about, "expect": each.expect, "settings": each.settings()}
                print_json(found | {"rules": [rule.to_dict() for rule in each.to_rules()]})
            return
        width = max(len(each.name) for each in RECIPES)
        for each in RECIPES:
            typer.echo(f"{each.name:<{width}}  {each.about}")
        typer.echo("\nPrint one: barnabas rules recipes NAME [--topic T] [--group G] [--client C] > rules.yaml")
        return
    recipe = find(name)
    if recipe is None:
        known = [each.name for each in RECIPES]
        raise Failure(f"there is no recipe {visible(name)!r}{nearest(name, known)}; barnabas rules recipes lists them")
    wanted = {key: value for key, value in (("topic", topic), ("group", group), ("client", client)) if value}
    if unused := [key for key in wanted if key not in recipe.settings()]:
        raise Failure(
            f"--{unused[0]} is not used by {recipe.name}; it takes: {', '.join(recipe.settings()) or 'nothing'}"
        )
    rules = [rule.to_dict() for rule in recipe.to_rules(**wanted)]
    if as_json:
        print_json({"rules": rules})
        return
    typer.echo(f"# {recipe.about}")
    typer.echo(f"# expect: {recipe.expect}")
    typer.echo(yaml.safe_dump({"rules": rules}, sort_keys=False, allow_unicode=True, width=110), nl=False)
