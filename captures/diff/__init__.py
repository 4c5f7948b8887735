"""Comparing two recordings: `compare` lists the differences, the worst first, and marks those that only timing explains."""

from .comparison import compare
from .report import Difference, Kind, Latency, Level, Report, Side

__all__ = ["Difference", "Kind", "Latency", "Level", "Report", "Side", "compare"]
