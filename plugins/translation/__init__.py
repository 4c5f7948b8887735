"""Translation: clients and brokers that share no version of an API understand each other. See docs/translation.md."""

from . import groups, offsets, topics, transfers
from .bridging import Bridge, bridges
from .translator import Answered, Ranges, Translated, Translator
from .version_ranges import served_by, shown

__all__ = ["Answered", "Bridge", "Ranges", "Translated", "Translator", "bridges", "served_by", "shown"]
STEPS_OF = (groups, offsets, topics, transfers)
