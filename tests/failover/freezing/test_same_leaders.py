"""A freeze that every broker goes by, while some do not know yet of a log that took records before it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

import pytest

from broker.client.cluster import Cluster
from broker.client.same_leaders import BrokersDiffer
from broker.cluster.metadata import TopicState
from broker.wire.site_role import SiteRole
from failover.freezing.choice import read_roles
from failover.freezing.freeze import Freeze
from tests.broker.cluster.test_three_replicas import NODES
from tests.broker.running_cluster import RunningCluster
from tests.failover.freezing.test_silent_roles import IMPATIENT, three_brokers
from tests.failover.stage import TOPIC
from tests.mirror.harness import make_topic

LAST = NODES[-1]


@dataclass
class Frozen:
    """A source of three brokers and the freeze of a link from there."""

    freeze: Freeze
    east: RunningCluster

    @property
    def roles(self) -> set[SiteRole]:
        return {self.east.broker(node).broker_configs.site.role for node in NODES}

    def told_late(self, topic: str, late: Callable[[TopicState], TopicState | None]) -> Callable[[], None]:
        """The last broker knows the topic as it was before, or not at all, until the function is called that this
        returns.
        """
        topics = self.east.broker(LAST).view.topics
        now = topics.pop(topic)
        if (before := late(now)) is not None:
            topics[topic] = before
        return lambda: topics.update({topic: now})


@asynccontextmanager
async def freezing(folder: Path) -> AsyncIterator[Frozen]:
    async def renew() -> None:
        """The operation is this machine's."""

    async with three_brokers(folder) as there:
        link = there.stage.link
        async with Cluster(link.source, client_id="farshore-switchover", limits=IMPATIENT) as source:
            await make_topic(source, "other", 1)
            roles = replace(await read_roles(link, source, there.stage.target), freezes=True)
            yield Frozen(Freeze(roles, link, (source, there.stage.target), "o-1", renew), there.east)


def _unknown(_now: TopicState) -> None:
    return None


def _led_by_another(now: TopicState) -> TopicState:
    first, *others = now.partitions
    return replace(now, partitions=(replace(first, leader_epoch=first.leader_epoch - 1), *others))


def _of_before(now: TopicState) -> TopicState:
    return replace(now, topic_id=uuid4())


@pytest.mark.parametrize("late", [_unknown, _led_by_another, _of_before])
async def test_a_source_is_drained_when_each_broker_knows_of_what_any_knows(
    tmp_path: Path, late: Callable[[TopicState], TopicState | None]
) -> None:
    """Brokers are told of topics and leaders one after the other, and a leader takes records as soon as it knows of it
    itself. Who looked by a broker that was told late saw a log without them, and called it whole.
    """
    async with freezing(tmp_path) as there:
        tell = there.told_late(TOPIC, late)
        with pytest.raises(
            BrokersDiffer, match=rf"brokers of east do not know who leads its partitions \(of {TOPIC}:0"
        ):
            await there.freeze.refuse_writes()
        assert there.roles == {SiteRole.FROZEN}
        tell()
        await there.freeze.refuse_writes()


async def test_what_the_link_does_not_mirror_is_not_waited_for(tmp_path: Path) -> None:
    async with freezing(tmp_path) as there:
        there.told_late("other", _unknown)
        await there.freeze.refuse_writes()
