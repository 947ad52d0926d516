"""A source some of whose brokers do not know yet of a log that took records."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

import pytest

from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.model import ClusterMetadata
from broker.client.same_leaders import BrokersDiffer, await_same_leaders
from broker.client.topics import delete_topics
from broker.cluster.metadata import TopicState
from broker.wire.coordinator_keys import OFFSETS_TOPIC
from broker.wire.site_role import SiteRole
from broker.wire.vocabulary import NO_LEADER_EPOCH
from failover.errors import NotDrained
from failover.freezing.choice import Freezing, read_roles
from failover.freezing.freeze import Freeze
from failover.observing.sites import Sites
from failover.planning.plan import plan_switchover
from failover.running.steps import OperationStep
from tests.broker.cluster.test_three_replicas import NODES
from tests.broker.running_cluster import RunningCluster, until
from tests.failover.freezing.test_silent_roles import IMPATIENT, three_brokers
from tests.failover.stage import PARTITIONS, TOPIC, Stage, mirrored
from tests.mirror.harness import make_topic

LAST = NODES[-1]


@dataclass
class There:
    """A source of three brokers, and the freeze of a link from there."""

    stage: Stage
    sites: Sites
    freezing: Freezing
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

    def elects(self, topic: str) -> None:
        """The first broker hears of a newer leader."""
        topics = self.east.broker(NODES[0]).view.topics
        (partition,) = topics[topic].partitions
        topics[topic] = replace(topics[topic], partitions=(replace(partition, leader_epoch=9),))


@asynccontextmanager
async def freezing(folder: Path) -> AsyncIterator[There]:
    async def renew() -> None:
        """The operation is this machine's."""

    async with three_brokers(folder) as there:
        stage, link = there.stage, there.stage.link
        async with Cluster(link.source, client_id="farshore-switchover", limits=IMPATIENT) as source:
            await make_topic(source, "other", 1)
            how = replace(await read_roles(link, source, stage.target), freezes=True)
            freeze = Freeze(how, link, (source, stage.target), "o-1", renew)
            yield There(stage, replace(stage.sites, source=source), how, freeze, there.east)


def _unknown(_now: TopicState) -> None:
    return None


def _led_by_another(now: TopicState) -> TopicState:
    first, *others = now.partitions
    return replace(now, partitions=(replace(first, leader_epoch=first.leader_epoch - 1), *others))


def _of_before(now: TopicState) -> TopicState:
    return replace(now, topic_id=uuid4())


@pytest.mark.parametrize(
    ("told", "late"),
    [
        (rf"{TOPIC}:0, {TOPIC}:1 is known to broker \d, broker \d, and not to broker {LAST}", _unknown),
        (f"broker {LAST} names a leader of before for {TOPIC}:0", _led_by_another),
        (f"{TOPIC} was made anew, and some tell of the one before", _of_before),
    ],
)
async def test_a_source_is_drained_when_each_broker_knows_of_what_any_knows(
    tmp_path: Path, told: str, late: Callable[[TopicState], TopicState | None]
) -> None:
    """Brokers are told of topics and leaders one after the other, and a leader takes records as soon as it knows of it
    itself. Who looked by a broker that was told late saw a log without them, and called it whole.
    """
    async with freezing(tmp_path) as there:
        tell = there.told_late(TOPIC, late)
        with pytest.raises(NotDrained, match=rf"^brokers of east do not tell the same: {told}, so that .*") as differs:
            await there.freeze.await_same_leaders(is_unchanged=True)
        assert differs.value.hint == "see `farshore cluster verify --site east`, then try again"
        tell()
        await there.freeze.await_same_leaders(is_unchanged=True)


async def test_who_has_not_heard_that_a_topic_was_deleted_is_waited_for(tmp_path: Path) -> None:
    async with freezing(tmp_path) as there:
        gone = there.east.broker(LAST).view.topics[TOPIC]
        await delete_topics(there.stage.source, [TOPIC])
        await until(lambda: all(TOPIC not in there.east.broker(node).view.topics for node in NODES))
        there.east.broker(LAST).view.topics[TOPIC] = gone
        with pytest.raises(NotDrained, match=rf"is known to broker {LAST}, and not to broker \d, broker \d"):
            await there.freeze.await_same_leaders(is_unchanged=True)
        del there.east.broker(LAST).view.topics[TOPIC]
        await there.freeze.await_same_leaders(is_unchanged=True)


async def test_what_came_behind_the_first_question_is_not_waited_for(tmp_path: Path) -> None:
    """Elections and topics that never end, as while brokers are restarted one by one, would have kept it waiting."""

    class Between(Cluster):
        """Where it is asked again, something else has changed."""

        async def metadata(self, topics: Iterable[str] | None = None) -> ClusterMetadata:
            for change in changes:
                change()
            changes.clear()
            return await super().metadata(topics)

    async with freezing(tmp_path) as there:
        changes: list[Callable[[], None]] = []
        async with Between(there.stage.link.source, client_id="farshore-switchover", limits=IMPATIENT) as source:
            learns = there.told_late(TOPIC, _unknown)
            changes += [learns, lambda: there.elects("other")]
            await await_same_leaders(source, lambda _: True)
            assert not changes
            assert source.leader_epoch(PARTITIONS[0]) == NO_LEADER_EPOCH, "leaders of before would be asked"


async def test_a_broker_that_comes_meanwhile_is_asked_too(tmp_path: Path) -> None:
    """It may lead what nobody who was asked has heard of."""
    async with freezing(tmp_path) as there:
        view = there.east.broker(NODES[0]).view
        late, known = view.brokers[LAST], {node: view.brokers[node] for node in NODES[:-1]}
        for node in NODES[:-1]:
            there.east.broker(node).view.brokers = known
        async with Cluster(there.stage.link.source, client_id="farshore-switchover", limits=IMPATIENT) as source:
            assert LAST not in source.nodes
            for node in NODES[:-1]:
                there.east.broker(node).view.brokers = {**known, LAST: late}
            there.told_late(TOPIC, _unknown)
            with pytest.raises(BrokersDiffer, match=rf"and not to broker {LAST}"):
                await await_same_leaders(source, lambda _: True)


async def test_a_broker_that_died_is_let_go_when_no_other_one_names_it(tmp_path: Path) -> None:
    async with freezing(tmp_path) as there:
        views = [there.east.broker(node).view for node in NODES[:-1]]
        before = views[0].brokers
        await there.east.kill(LAST)
        await until(lambda: all(LAST not in view.brokers for view in views))
        views[0].brokers = before
        with pytest.raises(ClientError):
            await there.freeze.await_same_leaders(is_unchanged=True)
        views[0].brokers = views[1].brokers
        await there.freeze.await_same_leaders(is_unchanged=True)


async def test_what_the_link_does_not_mirror_is_not_waited_for(tmp_path: Path) -> None:
    async with freezing(tmp_path) as there:
        there.told_late("other", _unknown)
        await there.freeze.await_same_leaders(is_unchanged=True)


async def test_who_names_the_coordinator_of_before_is_waited_for(tmp_path: Path) -> None:
    """It tells where groups were when it was the leader of their commits, and they were moved there."""
    async with freezing(tmp_path) as there:
        tell = there.told_late(OFFSETS_TOPIC, _led_by_another)
        with pytest.raises(NotDrained, match=f"broker {LAST} names a leader of before for {OFFSETS_TOPIC}:0"):
            await there.freeze.await_same_leaders(is_unchanged=True)
        tell()
        await there.freeze.await_same_leaders(is_unchanged=True)


async def test_a_switchover_from_brokers_that_differ_closes_nothing(tmp_path: Path) -> None:
    async with freezing(tmp_path) as there:
        async with mirrored(there.stage):
            plan = plan_switchover(await there.sites.look(), freezing=there.freezing)
            there.told_late(TOPIC, _led_by_another)
            with pytest.raises(NotDrained):
                await there.stage.run(plan, there.sites)
        assert there.roles == {SiteRole.ACTIVE}
        assert {there.east.broker(node).broker_configs.site.epoch for node in NODES} == {0}


async def test_brokers_that_differ_behind_the_freeze_are_let_in_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closing = Freeze.refuse_writes

    async with freezing(tmp_path) as there:

        async def refuse_writes(self: Freeze) -> None:
            await closing(self)
            assert there.roles == {SiteRole.FROZEN}
            there.told_late(TOPIC, _led_by_another)

        monkeypatch.setattr(Freeze, "refuse_writes", refuse_writes)
        async with mirrored(there.stage):
            plan = plan_switchover(await there.sites.look(), freezing=there.freezing)
            assert OperationStep.FREEZE in plan.steps
            with pytest.raises(NotDrained):
                await there.stage.run(plan, there.sites)
        assert there.roles == {SiteRole.ACTIVE}
        assert (await there.stage.sites.look()).link_state == "running"
