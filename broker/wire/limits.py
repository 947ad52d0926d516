"""Limits of the wire layer, units in the names."""

from __future__ import annotations

from typing import Final

MAX_TAGS_PER_STRUCT: Final = 4096
"""More tagged fields than that in one struct are taken for garbage; Kafka's messages have at most a handful."""

MAX_ERROR_TEXT_CHARS: Final = 200
"""How much of an offending value is put into an error's text."""
