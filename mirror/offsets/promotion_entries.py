"""What a link's state keeps of promotions: of links that go back, and of the logs that its own have fenced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias


@dataclass(frozen=True, slots=True)
class BackPromotion:
    """`link`, which mirrors back, stands promoted by this operation, or is about to be; in the part of the first unit.

    Written by a session of the state's own link, or by the command that promotes the one back, as nobody's producer.
    """

    link: str
    operation_id: str


class FencedEnd(NamedTuple):
    """The partition's log at the target, as a `FencedLog` says it."""

    partition: int
    end: int
    producer_id: int
    epoch: int


class FencedTopic(NamedTuple):
    """A topic by the source's name, with the id that the target's had when it was fenced."""

    topic: str
    topic_id: str
    ends: tuple[FencedEnd, ...]


@dataclass(frozen=True, slots=True)
class FencedLogs:
    """Where the target's logs ended behind a promotion's fence (`fenced_logs.py`), of one share of the topics.

    Written by the command that promotes the link, as nobody's producer: true whenever it comes. Versions that know none
    refuse it.
    """

    share: int
    operation_id: str
    topics: tuple[FencedTopic, ...]


PromotionEntry: TypeAlias = BackPromotion | FencedLogs


def promotion_key(entry: PromotionEntry) -> list[Any]:
    return ["back", entry.link] if isinstance(entry, BackPromotion) else ["fenced", entry.share]


def unpack_promotion(key: list[Any], fields: dict[str, Any]) -> PromotionEntry:
    """Raises TypeError, ValueError for what cannot be read."""
    if key[0] == "back":
        return BackPromotion(**fields)
    topics = tuple(
        FencedTopic(str(topic), str(topic_id), tuple(FencedEnd(*map(int, end)) for end in ends))
        for topic, topic_id, ends in fields.pop("topics")
    )
    return FencedLogs(topics=topics, **fields)
