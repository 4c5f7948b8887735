"""Export to files: an exchange as a program, a test, JSON, bytes or a capture; or all exchanges of the list.

Files are complete or not there, and readable by their owner only. Secrets are masked; keys and values of records are left
out unless the screen shows them.
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
from ..dialogs.dialogs import AskDialog, Confirm, Pick


class ExportFormat(NamedTuple):
    """One way to export. `name`: the proposed file name; `make(path)` writes the file and returns a summary;
    `long`: it reads the whole capture, so it is done in a thread."""

    words: str
    name: str
    make: Callable[[Path], str]
    long: bool = False


def export_formats(capture: Capture, row: Row, exchange: Exchange, values: bool, shown: str, count: int) -> list[ExportFormat]:
    """The formats for an exchange, and for the `count` exchanges that the filter `shown` selects ("": all)."""
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
        ExportFormat("this exchange as a Python program", f"exchange-{number}.py", text(lambda: program(exchange, values))),
        ExportFormat("this exchange as a pytest case", f"test_exchange_{number}.py", text(lambda: case(exchange, values))),
        ExportFormat("this exchange as JSON", f"exchange-{number}.json", text(as_json)),
        ExportFormat("this exchange as bytes with field names", f"exchange-{number}.txt",
             text(lambda: "".join(visible(line) + "\n" for line in dump(exchange, values)))),
        ExportFormat("this exchange as a capture", f"exchange-{number}.pcapng",
             lambda path: _cut(capture.path, path, numbers=(number, number)), True),
    ]  # fmt: skip
    return [*found, *list_formats(capture, shown, count)]


def list_formats(capture: Capture, shown: str, count: int) -> list[ExportFormat]:
    """The formats for the `count` exchanges that the filter `shown` selects ("": all)."""
    words = f"the {count:,} exchanges shown" if shown else f"all {count:,} exchanges"

    def rows(format: Format) -> Callable[[Path], str]:
        return lambda path: _rows(capture.path, path, shown, format)

    return [
        ExportFormat(f"{words} as a capture", "exchanges.pcapng", lambda path: _cut(capture.path, path, shown=shown), True),
        ExportFormat(f"{words} as JSON lines", "exchanges.jsonl", rows(Format.JSONL), True),
        ExportFormat(f"{words} as CSV", "exchanges.csv", rows(Format.CSV), True),
    ]


def _cut(source: Path, target: Path, numbers: tuple[int, int] | None = None, shown: str = "") -> str:
    from ....captures.transform.cut import Cut, CutSelection
    from ....captures.transform.write import Writer, replacing

    if target.suffix != ".pcapng":
        raise ValueError("the name of a capture must end with .pcapng")
    part = CutSelection(compile(shown, zone=zone()) if shown else None, numbers=numbers)
    with replacing(target, force=True) as place:
        writer = Writer(place, one_file=True)
        found = Cut(source, part)
        for event in found.events():
            writer.write(event)
        writer.close()
    return f"{found.exchanges:,} exchange{'' if found.exchanges == 1 else 's'}, with the start of their connections"


def _rows(source: Path, target: Path, shown: str, format: Format) -> str:
    from ....captures import tables

    table = tables.described("exchanges")
    options = tables.Options(table, table.chosen())
    with open_capture(source) as capture, written(target, force=True) as file:
        rows = tables.Rows(capture, options, compile(shown, zone=zone()) if shown else None)
        return f"{write(file, format, rows, options.columns):,} exchanges"


def export(screen: AppScreen[Any], ways: list[ExportFormat]) -> None:
    """Ask for the format and the file. Ask again before a file is replaced."""

    def chosen(position: int | None) -> None:
        if position is not None:
            way = ways[position]
            screen.app.push_screen(AskDialog(f"Write {way.words} to", way.name), lambda name: _named(screen, way, name))

    screen.app.push_screen(Pick("Export", [[(fit(way.words, 44), "name"), (way.name, "muted")] for way in ways], "choose a file"), chosen)


def _named(screen: AppScreen[Any], way: ExportFormat, name: str | None) -> None:
    if name is None or not name.strip():
        return
    path = Path(name.strip()).expanduser()
    if os.path.lexists(path):
        sure = lambda yes: _write(screen, way, path) if yes else None  # noqa: E731
        screen.app.push_screen(Confirm(f"{path} already exists. Replace it?"), sure)
    else:
        _write(screen, way, path)


def _write(screen: AppScreen[Any], way: ExportFormat, path: Path) -> None:
    if not way.long:
        _report(screen, *_made(way, path))
        return
    screen.notify(f"Writing {visible(str(path))} ...", timeout=2, markup=False)

    app = screen.app

    def work() -> None:
        outcome = _made(way, path)
        app.call_from_thread(_report, screen, *outcome)

    app.run_worker(work, thread=True, group="export", exit_on_error=False)


def _made(way: ExportFormat, path: Path) -> tuple[str, bool]:
    """What to report, and whether it failed."""
    try:
        return f"{way.make(path)} in {visible(str(path))}", False
    except NoProgram as error:
        return f"It cannot be exported: {visible(str(error))}", True
    except OSError as error:
        return f"{visible(str(path))} cannot be written: {visible(error.strerror or str(error))}", True
    except ValueError as error:
        return visible(str(error)), True


def _report(screen: AppScreen[Any], text: str, failed: bool) -> None:
    screen.session.add_to_log(f"export: {text}", failed)
    screen.notify(text, severity="error" if failed else "information", timeout=5, markup=False)
