"""What leaves the screen as a file: an exchange as a program, a test, JSON, bytes or a capture; or all that the list shows.

Files are whole or not there, and for their owner alone. Secrets are masked, and what records say is left out unless it
is shown on the screen.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ....captures import Capture, Row, open_capture
from ....captures.export import Format, NoProgram, case, dump, program, write, written
from ....captures.export.text import json_visible
from ....decoder import Exchange
from ....decoder.filter import compile
from ...safe import fit, visible
from ...times import zone
from ..application import AppScreen
from ..dialogs.dialogs import Ask, Confirm, Pick


class Form(NamedTuple):
    """One way to export. `name`: of the file that is proposed; `make(path)` writes it and says what was written; `long`: it
    reads the capture, so it is done in a thread."""

    words: str
    name: str
    make: Callable[[Path], str]
    long: bool = False


def forms(capture: Capture, row: Row, exchange: Exchange, values: bool, shown: str, count: int) -> list[Form]:
    """The ways for an exchange, and for the `count` exchanges that the filter `shown` selects ("": all of them)."""
    number = row.number + 1

    def text(of: Callable[[], str]) -> Callable[[Path], str]:
        def make(path: Path) -> str:
            with written(path, force=True) as file:
                file.write(of().encode("utf-8", "replace"))
            return f"#{number}"

        return make

    def as_json() -> str:
        found = exchange.to_dict(bodies=True, values=values)
        return json_visible(json.dumps(found, indent=2, ensure_ascii=False)) + "\n"

    found = [
        Form("this exchange as a Python program", f"exchange-{number}.py", text(lambda: program(exchange, values))),
        Form("this exchange as a pytest case", f"test_exchange_{number}.py", text(lambda: case(exchange, values))),
        Form("this exchange as JSON", f"exchange-{number}.json", text(as_json)),
        Form("this exchange as bytes with field names", f"exchange-{number}.txt",
             text(lambda: "".join(visible(line) + "\n" for line in dump(exchange, values)))),
        Form("this exchange as a capture", f"exchange-{number}.pcapng",
             lambda path: _cut(capture.path, path, numbers=(number, number)), True),
    ]  # fmt: skip
    words = f"the {count:,} exchanges shown" if shown else f"all {count:,} exchanges"
    return [
        *found,
        Form(f"{words} as a capture", "exchanges.pcapng", lambda path: _cut(capture.path, path, shown=shown), True),
        Form(f"{words} as JSON lines", "exchanges.jsonl", lambda path: _rows(capture.path, path, shown), True),
    ]


def _cut(source: Path, target: Path, numbers: tuple[int, int] | None = None, shown: str = "") -> str:
    from ....captures.transform.cut import Cut, CutSelection
    from ....captures.transform.write import Writer, replacing

    if target.suffix != ".pcapng":
        raise ValueError("the name of a capture ends with .pcapng")
    part = CutSelection(compile(shown, zone=zone()) if shown else None, numbers=numbers)
    with replacing(target, force=True) as place:
        writer = Writer(place, one_file=True)
        found = Cut(source, part)
        for event in found.events():
            writer.write(event)
        writer.close()
    return f"{found.exchanges:,} exchange{'' if found.exchanges == 1 else 's'}, and how their connections began"


def _rows(source: Path, target: Path, shown: str) -> str:
    from ....captures import tables

    table = tables.described("exchanges")
    options = tables.Options(table, table.chosen())
    with open_capture(source) as capture, written(target, force=True) as file:
        rows = tables.Rows(capture, options, compile(shown, zone=zone()) if shown else None)
        return f"{write(file, Format.JSONL, rows, options.columns):,} exchanges"


def export(screen: AppScreen[Any], ways: list[Form]) -> None:
    """Ask how, and where to; a file that is there is replaced only when that is wanted."""

    def chosen(position: int | None) -> None:
        if position is not None:
            way = ways[position]
            screen.app.push_screen(Ask(f"Write {way.words} to", way.name), lambda name: _named(screen, way, name))

    screen.app.push_screen(Pick("Export", [[(fit(way.words, 44), "name"), (way.name, "muted")] for way in ways], "choose a file"), chosen)


def _named(screen: AppScreen[Any], way: Form, name: str | None) -> None:
    if name is None or not name.strip():
        return
    path = Path(name.strip()).expanduser()
    if os.path.lexists(path):
        sure = lambda yes: _write(screen, way, path) if yes else None  # noqa: E731
        screen.app.push_screen(Confirm(f"{path} is there already. Replace it?"), sure)
    else:
        _write(screen, way, path)


def _write(screen: AppScreen[Any], way: Form, path: Path) -> None:
    if not way.long:
        _told(screen, *_made(way, path))
        return
    screen.notify(f"Writing {visible(str(path))} ...", timeout=2, markup=False)

    app = screen.app

    def work() -> None:
        said = _made(way, path)
        app.call_from_thread(_told, screen, *said)

    app.run_worker(work, thread=True, group="export", exit_on_error=False)


def _made(way: Form, path: Path) -> tuple[str, bool]:
    """What to say, and whether it went wrong."""
    try:
        return f"{way.make(path)} in {visible(str(path))}", False
    except NoProgram as error:
        return f"It cannot be exported so: {visible(str(error))}", True
    except OSError as error:
        return f"{visible(str(path))} cannot be written: {visible(error.strerror or str(error))}", True
    except ValueError as error:
        return visible(str(error)), True


def _told(screen: AppScreen[Any], text: str, wrong: bool) -> None:
    screen.session.add_to_log(f"export: {text}", wrong)
    screen.notify(text, severity="error" if wrong else "information", timeout=5, markup=False)
