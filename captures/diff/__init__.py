"""Two recordings side by side: `compare` says what differs, the worst first, and what only timing explains."""

from .comparison import compare
from .report import Difference, Kind, Latency, Level, Report, Side

__all__ = ["Difference", "Kind", "Latency", "Level", "Report", "Side", "compare"]
