"""What a session does besides moving records: checkpoints, topics, configs, groups, all on the clock."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from broker.client.errors import ClientError
from broker.client.model import Topic
from broker.client.topics import list_topics
from mirror.errors import StateDamaged
from mirror.groups.sync import sync_groups
from mirror.link import Link
from mirror.offsets.shared import GroupMap, load_group_map
from mirror.topics.plan import ConfigChange
from mirror.topics.sync import find_concerns, sync_configs
from mirror.worker.events import Event, changed_only
from mirror.worker.session import Session


class SessionOutdated(Exception):
    """Not an error: what the session stands on has changed, a new one must fence anew. The reason is the text."""


async def run_checkpoints(session: Session) -> None:
    """Write the proved positions at least every `checkpoint_interval_ms` while they move."""
    interval_s = session.limits.checkpoint_interval_ms / 1000
    while True:
        try:
            async with asyncio.timeout(interval_s):
                await session.checkpoint_due.wait()
        except TimeoutError:
            pass  # the interval is over: that is the usual reason to write
        session.write_checkpoints()


async def run_heartbeat(session: Session) -> None:
    """Say that this worker lives, whatever its other tasks wait for."""
    while True:
        await session.target.clock.sleep(session.limits.heartbeat_interval_ms / 1000)
        session.write_owner()


async def run_topics(session: Session) -> None:
    """Notice new topics, partitions, leaders and ids, and carry configs over. Raises SessionOutdated, ClientError."""
    clock = session.target.clock
    started = clock.monotonic()
    known = _shape(session.link, await list_topics(session.source))
    tell = changed_only(session.tell)
    for finding in await find_concerns(session.source, session.target, session.topics.mirrored, clock.now_ms()):
        session.tell(
            Event.FINDING,
            topic=finding.topic,
            kind=finding.kind.value,
            config=finding.config,
            source_value=finding.source_value,
            target_value=finding.target_value,
        )
    shown: frozenset[ConfigChange] = frozenset()
    while True:
        configs = await sync_configs(session.link, session.source, session.target, session.topics.mirrored, shown)
        for change in configs.planned:
            tell(Event.CONFIG_DRIFT, f"{change.topic}:{change.name}", f"{change.target_value} -> {change.source_value}")
        for change in configs.applied:
            session.tell(Event.CONFIG_APPLIED, topic=change.topic, config=change.name, value=change.source_value)
        for topic, failure in configs.failures.items():
            tell(Event.TOPIC_FAILED, topic, str(failure))
        shown = frozenset(configs.planned)
        await clock.sleep(session.limits.topic_refresh_interval_ms / 1000)
        now = _shape(session.link, await list_topics(session.source))
        if now != known:
            raise SessionOutdated(f"topics, partitions or leaders changed at {session.link.source.name}")
        if session.topics.failures:
            raise SessionOutdated("target topics that could not be made are tried again")
        if clock.monotonic() - started > session.limits.fence_renewal_ms / 1000:
            raise SessionOutdated("the fence is old")


def _shape(link: Link, topics: Mapping[str, Topic]) -> dict[str, tuple[object, ...]]:
    """Of the selected topics, everything that a session depends on."""
    return {
        name: (topic.topic_id, tuple((p.partition, p.leader_id) for p in topic.partitions))
        for name, topic in topics.items()
        if link.selects_topic(name)
    }


async def run_groups(session: Session) -> None:
    """Carry group offsets over. What fails, one group or a whole pass, is told, and tried again at the next pass."""
    tell = changed_only(session.tell)
    link, clusters = session.link, (session.source, session.target)

    async def load_map() -> GroupMap:
        return await load_group_map(link, session.offset_map, session.in_doubt(), clusters, session.examined)

    while link.groups or session.groups.by_group:
        try:
            report = await sync_groups(link, *clusters, load_map, session.groups, session.state_writer.write)
            for group, failure in report.failures.items():
                tell(Event.GROUP_FAILED, group, str(failure))
        except (ClientError, StateDamaged) as error:
            # Records flow all the same. That no group was looked at shows in the state, by the time of the last look.
            tell(Event.GROUP_FAILED, "*", str(error))
        await session.target.clock.sleep(session.limits.group_sync_interval_ms / 1000)
