"""Groups of options: a dataclass whose fields are options of the command line, declared once for every command that has
them, and for the config file. A field is an option (``Annotated`` with `option`), named as the field, or another group."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import fields, is_dataclass, replace
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

import typer
from typer.models import OptionInfo

Group = TypeVar("Group")


def option(
    words: str,
    metavar: str | None = None,
    *,
    show_default: bool = False,
    panel: str | None = None,
    min: float | None = None,
    autocompletion: Callable[..., list[str]] | None = None,
) -> OptionInfo:
    """An option: its help, its least value, what completes it; `panel`: if not the `PANEL` of its group."""
    made: OptionInfo = typer.Option(
        help=words, metavar=metavar, rich_help_panel=panel, show_default=show_default, min=min, autocompletion=autocompletion
    )
    return made


def options_of(group: type) -> Iterator[inspect.Parameter]:
    """Every option of a group and of the groups in it, as a parameter of a command."""
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        kind = hints[field.name]
        if is_dataclass(kind):
            yield from options_of(kind)  # type: ignore[arg-type]
            continue
        of, info = get_args(kind)
        info = copy(info)
        info.rich_help_panel = info.rich_help_panel or getattr(group, "PANEL", None)
        if of is bool:
            info.param_decls = (f"--{field.name.replace('_', '-')}",)  # no --no-NAME beside it
        yield inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=Annotated[of, info]
        )


def with_values(group: Group, values: Mapping[str, object]) -> Group:
    """The group with these values of options, by their names; names of other options are left alone."""
    changes: dict[str, Any] = {}
    for field in fields(group):  # type: ignore[arg-type]
        now = getattr(group, field.name)
        if is_dataclass(now):
            changes[field.name] = with_values(now, values)
        elif field.name in values:
            changes[field.name] = values[field.name]
    return replace(group, **changes)  # type: ignore[type-var]


def with_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """A command for typer: where a parameter is a group, the command line has the group's options."""
    parameters = inspect.signature(command, eval_str=True).parameters
    kinds = {name: each.annotation for name, each in parameters.items()}
    groups = {name: kind for name, kind in kinds.items() if isinstance(kind, type) and is_dataclass(kind)}

    def called(**values: Any) -> None:
        command(**{name: with_values(groups[name](), values) if name in groups else values[name] for name in parameters})

    called.__name__, called.__doc__ = command.__name__, command.__doc__
    expanded = (
        parameter
        for name, each in parameters.items()
        for parameter in (options_of(groups[name]) if name in groups else [each.replace(kind=inspect.Parameter.KEYWORD_ONLY)])
    )
    called.__signature__ = inspect.Signature(list(expanded))  # type: ignore[attr-defined]
    called.__annotations__ = {}  # those of the signature hold
    return called
