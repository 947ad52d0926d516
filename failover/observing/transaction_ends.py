"""Of transactions that are open, in words: where each begins, and what ends it."""

from __future__ import annotations

from collections.abc import Mapping

from broker.client.site import Site
from broker.wire.vocabulary import TopicPartition
from mirror.api import end_by_hand


def told_starts(starts: Mapping[TopicPartition, int]) -> str:
    """Where transactions are open: by partition the offset that one begins at."""
    return ", ".join(f"{at.topic}-{at.partition} from offset {start} on" for at, start in sorted(starts.items()))


def how_they_end(site: Site, starts: Mapping[TopicPartition, int]) -> str:
    """A hint, with the commands that end the first of them."""
    by_hand = end_by_hand(site.bootstrap_servers, *min(starts.items()))
    return f"each ends by its own time-out (transaction.timeout.ms) at the latest: try again then, or end it: {by_hand}"
