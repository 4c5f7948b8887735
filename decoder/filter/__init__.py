"""The filter language, for everything that selects exchanges. docs/filter.md describes it.

    from barnabas.decoder.filter import compile
    wanted = compile("api == Produce and topic == orders and err != 0")
    wanted(exchange)            # True or False
    wanted.needs, wanted.request_only, wanted.apis()
    wanted.tree                 # its meaning, typed and immutable (`tree`), for other back ends

`language` turns text into tokens (`lexer`), a syntax tree (`parser`) and a tree of typed tests (`check`, `tree`; `fields` is the
catalogue, `paths` and `entities` come from the schema). Back ends are `evaluate` for exchanges and `columns` for the
index of a recording. `completion` completes a filter while it is typed.
"""

from .columns import Columns, ColumnTest, Layout
from .compiled import Filter, compile, named_zone
from .completion import Candidate, complete
from .language.errors import FilterError
from .language.fields import FIELDS, Field, Need, ValueKind
from .language.parser import parse

__all__ = [
    "FIELDS",
    "Candidate",
    "ColumnTest",
    "Columns",
    "Field",
    "Filter",
    "FilterError",
    "Layout",
    "Need",
    "ValueKind",
    "compile",
    "complete",
    "named_zone",
    "parse",
]  # fmt: skip
