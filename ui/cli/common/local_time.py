"""The option ``--local`` of commands that show or read times."""

from __future__ import annotations

from typing import Annotated

import typer

from ... import times

Local = Annotated[
    bool, typer.Option("--local", help="Show and read times in the local zone instead of UTC.", callback=times.use_local)
]
