"""Limits of the wire layer, units in the names."""

from __future__ import annotations

from typing import Final

MAX_TAGS_PER_STRUCT: Final = 4096
"""More tagged fields than that in one struct are taken for garbage; Kafka's messages have at most a handful."""

MAX_ERROR_TEXT_CHARS: Final = 200
"""How much of an offending value is put into an error's text."""

MAX_DECOMPRESSED_BATCH_BYTES: Final = 256 * 1024 * 1024
"""What a batch may decompress to where the caller sets no limit of its own: the mirror, and clients that read."""

MAX_OPENED_BATCH_RECORDS: Final = 1_000_000
"""Records, each header counted as one more, that are read of one batch where the caller sets no limit of its own."""

CONVERTED_BATCH_MAX_BYTES: Final = 512 * 1024
"""Uncompressed messages of an old format are put into one batch up to this size; one that is larger is one alone."""

DECOMPRESSION_FIRST_GUESS_BYTES: Final = 64 * 1024
DECOMPRESSION_GROWTH_FACTOR: Final = 4
"""First guess at the ratio of a compressed batch, and how much is added when the guess was too small."""

MIN_RECORD_BYTES: Final = 7
"""A record has at least: length, attributes, two deltas, two lengths, a header count."""
