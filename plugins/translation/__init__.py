"""Translation: clients and brokers that share no version of an API understand each other. See docs/translation.md."""

from . import groups, offsets, topics, transfers
from .bridging import Bridge, bridges
from .offering import served_by, shown
from .translator import Answered, Ranges, Translated, Translator

__all__ = ["Answered", "Bridge", "Ranges", "Translated", "Translator", "bridges", "served_by", "shown"]
STEPS_OF = (groups, offsets, topics, transfers)
