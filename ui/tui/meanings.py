"""What some numbers in messages mean; the words are in ``decoder/explanations/values.txt``."""

from __future__ import annotations

from ...decoder.explain import meaning

__all__ = ["meaning"]
