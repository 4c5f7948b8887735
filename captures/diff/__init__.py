"""Comparing two recordings: `compare` lists the differences, the worst first, and marks those that only timing explains."""

from .comparison import compare, compare_captures
from .report import Difference, DifferenceKind, DiffReport, Latency, Level, Side

__all__ = ["DiffReport", "Difference", "DifferenceKind", "Latency", "Level", "Side", "compare", "compare_captures"]
