"""Records from one message format to another: message sets of magic 0 and 1, record batches of magic 2.

`up` is for what an old producer sends, `down` for what an old consumer is given, `stored` for what a new one is given of an
old broker's log. All are pure: bytes in, bytes out.
What is converted is what Kafka's own brokers made of it while they converted (until 4.0): the same offsets, times and
codecs, no transaction markers, no headers.
"""

from __future__ import annotations

from .conversion import ConversionCounts, ConversionError
from .down import down
from .up import stored, up

__all__ = ["ConversionCounts", "ConversionError", "down", "stored", "up"]
