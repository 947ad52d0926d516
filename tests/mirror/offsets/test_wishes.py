"""What others write into a link's state: its owner finds it by the answers to its own batches, and reads no more."""

from __future__ import annotations

import pytest

from broker.client.cluster import Cluster
from broker.client.offsets import log_end_offsets
from broker.client.scan import OffsetSpan, scan_batches
from broker.wire.vocabulary import TopicPartition
from mirror.link import Link
from mirror.offsets import wishes
from mirror.offsets.acceptance import ask_to_accept
from mirror.offsets.acceptance_entries import Acceptance
from mirror.offsets.entries import GapKind
from mirror.offsets.fence import fence_link
from mirror.offsets.state_writer import StateLog, ensure_own_topics
from mirror.offsets.topic_entries import TopicIdentity, TopicPause, VoidPause
from mirror.offsets.topic_pauses import pause_topics, resume_topics
from mirror.offsets.wishes import WishReader

OWN = TopicIdentity("flights", "an-id")


async def end_of(target: Cluster, link: Link) -> int:
    where = TopicPartition(link.state_topic, 0)
    return (await log_end_offsets(target, [where]))[where]


async def followed(target: Cluster, link: Link) -> tuple[StateLog, WishReader]:
    await ensure_own_topics(target, link)
    writer = (await fence_link(target, link, [])).writer
    log = StateLog(target, link, writer)
    return log, WishReader(link, log, await end_of(target, link))


async def test_each_wish_is_heard_once_in_its_order(target: Cluster, link: Link) -> None:
    log, reader = await followed(target, link)
    heard: list[int] = []
    reader.on_wish(lambda: heard.append(1))
    await log.append([OWN])
    assert (await reader.read(target), heard) == ([], [])
    await pause_topics(link, target, "pause-1", ["flights", "gates"])
    await resume_topics(link, target, ["gates"])
    asked = Acceptance("flights", 2, 5, GapKind.DELETED, 1, 9, "resume-1")
    await ask_to_accept(link, target, [asked])
    assert await reader.read(target) == [], "the owner has not written since"
    await log.append([OWN])
    first, second, lifted, accepted = await reader.read(target)
    assert isinstance(first, TopicPause)
    assert isinstance(second, TopicPause)
    assert [(each.topic, each.operation_id) for each in (first, second)] == [
        ("flights", "pause-1"),
        ("gates", "pause-1"),
    ]
    assert (lifted, accepted, heard) == (VoidPause("gates"), asked, [1])
    await log.append([OWN, OWN])
    await log.append([OWN])
    assert (await reader.read(target), heard) == ([], [1])


async def test_what_came_before_the_first_batch_of_the_owner_is_heard(target: Cluster, link: Link) -> None:
    """It read its state up to there, and nothing says that the next batch is the next in the log."""
    log, reader = await followed(target, link)
    await pause_topics(link, target, "pause-1", ["flights"])
    await log.append([OWN])
    assert [type(wish) for wish in await reader.read(target)] == [TopicPause]


async def test_nothing_of_the_owner_s_is_read_again(
    target: Cluster, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[OffsetSpan] = []

    async def noted(cluster: Cluster, spans: dict[TopicPartition, OffsetSpan], visit: object) -> None:
        read.extend(spans.values())
        await scan_batches(cluster, spans, visit)  # type: ignore[arg-type]

    monkeypatch.setattr(wishes, "scan_batches", noted)
    log, reader = await followed(target, link)
    for _ in range(5):
        await log.append([OWN] * 10)
    await reader.read(target)
    assert read == []
    at = await end_of(target, link)
    await resume_topics(link, target, ["flights"])
    await log.append([OWN])
    assert await reader.read(target) == [VoidPause("flights")]
    assert read == [OffsetSpan(at, at + 1)]


async def test_a_pause_that_is_said_again_keeps_its_time(target: Cluster, link: Link) -> None:
    log, reader = await followed(target, link)
    for operation in ("pause-1", "pause-2"):
        await pause_topics(link, target, operation, ["flights"])
    await log.append([OWN])
    first, again = await reader.read(target)
    assert first == again
    assert isinstance(again, TopicPause)
    assert again.operation_id == "pause-1"
