"""How wide the blocks of offsets are by which a record finds its interval of the map: a join of equality needs blocks.

Wide ones are few, and each record visits all intervals of its own; narrow ones are many, and all are sent to each task.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from monitoring import limits


def block_offsets(spans: Sequence[tuple[str, int, int, int]]) -> int:
    """The widest blocks (a power of two) in which few of the spans (topic, partition, start, end) begin; narrower ones
    only while all spans together touch no more blocks than can be sent around."""
    width = chosen = limits.AUDIT_BLOCK_MAX_OFFSETS
    touched_max = max(limits.AUDIT_BLOCKS_SENT, 2 * len(spans))
    while width >= limits.AUDIT_BLOCK_MIN_OFFSETS:
        if sum((end - 1) // width - start // width + 1 for _, _, start, end in spans) > touched_max:
            break
        chosen = width
        starts = Counter((topic, partition, start // width) for topic, partition, start, _ in spans)
        if max(starts.values(), default=0) <= limits.AUDIT_BLOCK_SPANS:
            break
        width //= 4
    return chosen
