"""How wide each column of a table becomes, so that it fits the terminal: pure functions of texts and widths."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

FOLDABLE_FROM_CHARS = 17
"""From this length on a cell with spaces (a time, a sentence) may go on in the next line."""
NAME_CHARS = 16
"""A longer name may go on in the next line, when nothing else helps."""
COPIED_HEADS = frozenset({"operation id"})
"""What stands under these is copied into another command, and never breaks."""


def column_widths(heads: Sequence[str], rows: Sequence[Sequence[str]], room_chars: int) -> tuple[int, ...] | None:
    """The width of each column in characters, all of them together at most `room_chars`; None if they cannot fit.

    Heads give way first, then long cells, then long names, the widest column first; numbers never break.
    """
    columns = list(zip(heads, *rows, strict=True))
    widths = [max(map(cell_len, texts)) for texts in columns]
    for least in (_head_folded, _all_folded, _names_folded):
        if _narrow(widths, [least(texts) for texts in columns], room_chars):
            return tuple(widths)
    return None


def _narrow(widths: list[int], least: Sequence[int], room_chars: int) -> bool:
    """Take from the widest column that can give, until all of them fit; False if they do not."""
    while (excess := sum(widths) - room_chars) > 0:
        givers = sorted((index for index in range(len(widths)) if widths[index] > least[index]), key=widths.__getitem__)
        if not givers:
            return False
        widest = givers[-1]
        level = max([least[widest], *(widths[index] for index in givers[:-1] if widths[index] < widths[widest])])
        widths[widest] = max(level, widths[widest] - excess)
    return True


def _head_folded(texts: Sequence[str]) -> int:
    head, *cells = texts
    return max(_longest_word(head), *map(cell_len, cells))


def _all_folded(texts: Sequence[str]) -> int:
    head, *cells = texts
    return max(_longest_word(head), *(_least(text) for text in cells))


def _names_folded(texts: Sequence[str]) -> int:
    head, *cells = texts
    if head in COPIED_HEADS:
        return _all_folded(texts)
    return max(_longest_word(head), *(min(_least(text), NAME_CHARS) for text in cells))


def _least(text: str) -> int:
    return _longest_word(text) if len(text) >= FOLDABLE_FROM_CHARS else cell_len(text)


def _longest_word(text: str) -> int:
    return max(map(cell_len, text.split(" ")))
