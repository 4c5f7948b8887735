"""Reports over a folder of tables (`tables.output.folder`): the same SQL for DuckDB on one machine and for Spark on a cluster.

`make(engine, ...)` computes them; an engine has `query(sql) -> rows`. `duck.Duck` needs no Java, `spark.engine.Spark` a session.
"""

from __future__ import annotations

from .queries import REPORTS, QueryEngine
from .report import Report, make
from .trends import TRENDS

__all__ = ["REPORTS", "TRENDS", "QueryEngine", "Report", "make"]
