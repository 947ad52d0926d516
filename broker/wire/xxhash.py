"""XXH32, for the header checksum of LZ4 frames. Source: the xxHash specification, "XXH32 algorithm description"."""

from __future__ import annotations

from typing import Final

_PRIMES: Final = (2654435761, 2246822519, 3266489917, 668265263, 374761393)
_MASK: Final = 0xFFFFFFFF
_SHORT_BYTES: Final = 16


def xxhash32(data: bytes) -> int:
    """The hash with seed 0 of less than 16 bytes, as frame headers are; from there on the algorithm has more steps."""
    assert len(data) < _SHORT_BYTES, "frame headers are shorter"
    one, two, three, four, five = _PRIMES
    found = (five + len(data)) & _MASK
    words = len(data) // 4 * 4
    for at in range(0, words, 4):
        found = (found + int.from_bytes(data[at : at + 4], "little") * three) & _MASK
        found = _rotated(found, 17) * four & _MASK
    for byte in data[words:]:
        found = (found + byte * five) & _MASK
        found = _rotated(found, 11) * one & _MASK
    found = (found ^ found >> 15) * two & _MASK
    found = (found ^ found >> 13) * three & _MASK
    return found ^ found >> 16


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> 32 - bits) & _MASK
