"""Groups of a site: one group's failure touches no other."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from broker.client.cluster import Cluster
from broker.client.described_groups import DescribedConsumerGroup
from broker.client.errors import ClientError, ConnectionLost, KafkaError, RequestTimedOut
from broker.client.group_commits import commit_offsets_of_groups
from broker.client.groups import GroupOfOtherType, committed_offsets_of_groups, describe_groups, list_groups
from broker.client.limits import COMMITTED_AT_ONCE, ClientLimits
from broker.client.model import CommittedOffset
from broker.client.site import Site
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.frames import RequestHeader
from broker.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from broker.wire.messages.list_groups import ListedGroup, ListGroupsResponse
from broker.wire.schema import Message
from broker.wire.vocabulary import GroupState, TopicPartition
from tests.broker.client.group_site import GroupSite, serving
from tests.broker.running import running_broker

WHERE = TopicPartition("flights", 0)
OFFSETS = {f"g{n}": {WHERE: CommittedOffset(n)} for n in range(6)}
PATIENCE_MS = 300


async def read(site: GroupSite, limits: ClientLimits | None = None) -> dict[str, object]:
    async with serving(site, "east") as at, Cluster(at, limits=limits or ClientLimits()) as cluster:
        return dict(await committed_offsets_of_groups(cluster, OFFSETS, patience_ms=PATIENCE_MS))


@pytest.mark.parametrize("newest", [{}, {ApiKey.OFFSET_FETCH: 7, ApiKey.FIND_COORDINATOR: 3}])
@pytest.mark.parametrize("code", [ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
@pytest.mark.parametrize("fails", ["coordinator_errors", "fetch_errors"])
async def test_a_failed_group_is_told_and_the_others_are_read(
    newest: dict[ApiKey, int], code: ErrorCode, fails: str
) -> None:
    """Whether trying again is of use or not, and also where others fail with another error at the same time."""
    site = GroupSite(OFFSETS, newest=newest)
    getattr(site, fails).update({"g2": code, "g3": ErrorCode.COORDINATOR_NOT_AVAILABLE})
    found = await read(site)
    assert {name: offsets for name, offsets in found.items() if name not in ("g2", "g3")} == {
        name: offsets for name, offsets in OFFSETS.items() if name not in ("g2", "g3")
    }
    failed = found["g2"]
    assert isinstance(failed, KafkaError)
    assert failed.code is code
    assert isinstance(found["g3"], KafkaError)


async def test_a_coordinator_whose_answers_cannot_be_read_fails_its_own_groups_only() -> None:
    site = GroupSite(OFFSETS, garbling={1})
    found = await read(site)
    for name, offsets in OFFSETS.items():
        if site.node_of(name) == 0:
            assert found[name] == offsets
        else:
            failed = found[name]
            assert isinstance(failed, ConnectionLost)
            assert "cannot be read" in str(failed)
            assert "log" in failed.hint


async def test_an_offset_that_cannot_be_read_does_not_look_like_none() -> None:
    """A group without an offset gets one; one whose offset is there, but unreadable, must not."""
    found = await read(GroupSite(OFFSETS, partition_errors={"g4": ErrorCode.UNSTABLE_OFFSET_COMMIT}))
    assert isinstance(found["g4"], KafkaError)
    assert found["g5"] == OFFSETS["g5"]


async def test_a_coordinator_that_never_answers_fails_its_own_groups_only() -> None:
    site = GroupSite(OFFSETS, silent={1})
    found = await read(site)
    for name, offsets in found.items():
        if site.node_of(name) == 1:
            assert isinstance(offsets, RequestTimedOut)
        else:
            assert offsets == OFFSETS[name]
    assert set(found) == set(OFFSETS)


async def test_whoever_does_not_say_how_long_is_told_of_a_lost_coordinator() -> None:
    """A gate that asks for members must not take silence for none."""
    limits = ClientLimits(retry_timeout_ms=200, retry_backoff_max_ms=100, partition_patience_ms=200)
    site = GroupSite(OFFSETS)
    async with serving(site, "east") as at, Cluster(at, limits=limits) as cluster:
        assert set(await list_groups(cluster)) == set(OFFSETS)
        site.ports[1] = 1
        await cluster.metadata([])
        (await cluster.connection(1)).abort(ConnectionLost("the broker is gone"))
        with pytest.raises(ClientError):
            await describe_groups(cluster, OFFSETS)


class MovingSite(GroupSite):
    """Its second broker is dead; once it has been asked for its groups it counts as gone, and the first has them."""

    def _answer(self, header: RequestHeader, message: Message) -> Message:
        if header.api_key == ApiKey.LIST_GROUPS and len(self.ports) > 1:
            self.ports.pop()
            return ListGroupsResponse(groups=[ListedGroup("g0", "consumer", "Empty", "consumer")])
        return super()._answer(header, message)


async def test_groups_of_a_broker_that_has_gone_are_asked_for_where_they_are_now() -> None:
    limits = ClientLimits(retry_timeout_ms=5_000)
    site = MovingSite(OFFSETS)
    async with serving(site, "east") as at, Cluster(at, limits=limits) as cluster:
        site.ports[1] = 1
        assert set(await list_groups(cluster)) == set(OFFSETS)


async def test_a_broker_whose_silence_takes_all_the_time_is_not_waited_for_once_it_has_gone() -> None:
    """A switchover from a site one of whose brokers hung ended with that error, long after the site had dropped it."""
    limits = ClientLimits(
        request_timeout_ms=600,
        delivery_timeout_ms=600,
        retry_timeout_ms=200,
        retry_backoff_max_ms=100,
        partition_patience_ms=200,
    )
    async with serving(MovingSite(OFFSETS, silent={1}), "east") as at, Cluster(at, limits=limits) as cluster:
        assert set(await list_groups(cluster)) == set(OFFSETS)


MANY = {f"group-{n}": {WHERE: CommittedOffset(n, metadata=f"of {n}")} for n in range(3 * COMMITTED_AT_ONCE)}


async def test_offsets_of_many_groups_are_committed_side_by_side_and_never_all_at_once() -> None:
    """A round trip for each was two minutes for 1,000 groups at 100 ms."""
    site = GroupSite()
    async with serving(site, "west") as at, Cluster(at) as cluster:
        await cluster.metadata([])
        for node_id in range(2):
            await cluster.connection(node_id)
        site.waves = 0
        assert await commit_offsets_of_groups(cluster, {**MANY, "nothing to commit": {}}) == {}
    assert site.offsets == MANY
    assert site.commits_at_once <= COMMITTED_AT_ONCE
    assert site.requests[ApiKey.FIND_COORDINATOR] == 1
    assert 4 <= site.waves <= 8, (
        "one for the coordinators, and one for each hundred, or a few where the machine is slow"
    )


async def test_a_group_that_is_refused_is_told_and_the_others_are_committed() -> None:
    refused = {"group-7": ErrorCode.UNKNOWN_MEMBER_ID, "group-8": ErrorCode.GROUP_AUTHORIZATION_FAILED}
    site = GroupSite(commit_errors=dict(refused), coordinator_errors={"group-9": ErrorCode.GROUP_AUTHORIZATION_FAILED})
    async with serving(site, "west") as at, Cluster(at) as cluster:
        found = await commit_offsets_of_groups(cluster, MANY)
    told = refused | {"group-9": ErrorCode.GROUP_AUTHORIZATION_FAILED}
    assert {group: error.code for group, error in found.items() if isinstance(error, KafkaError)} == told
    assert site.offsets == {group: offsets for group, offsets in MANY.items() if group not in told}


async def test_a_coordinator_that_is_gone_is_no_refusal_of_its_groups_and_stops_no_other() -> None:
    limits = ClientLimits(retry_timeout_ms=200, retry_backoff_max_ms=100, partition_patience_ms=200)
    site = GroupSite()
    async with serving(site, "west") as at, Cluster(at, limits=limits) as cluster:
        site.ports[1] = 1
        await cluster.metadata([])
        failed = await commit_offsets_of_groups(cluster, MANY)
    assert 0 < len(failed) < len(MANY)
    assert all(isinstance(error, ConnectionLost) for error in failed.values())
    assert site.offsets == {group: offsets for group, offsets in MANY.items() if group not in failed}


async def test_members_of_the_consumer_protocol_are_seen(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as address, Cluster(Site("east", address)) as cluster:
        assert (await describe_groups(cluster, ["new"]))["new"].state is GroupState.DEAD  # type: ignore[union-attr]
        coordinator = await cluster.coordinator("group", "new")
        joins = ConsumerGroupHeartbeatRequest(
            "new", str(uuid4()), 0, rebalance_timeout_ms=60_000, subscribed_topic_names=["flights"], topic_partitions=[]
        )
        joined = await coordinator.request(joins)
        assert joined.error_code == 0, joined
        found = (await describe_groups(cluster, ["new", "nobody"]))["new"]
        assert isinstance(found, DescribedConsumerGroup)
        assert [member.member_id for member in found.members] == [joined.member_id]
        assert not found.state.has_no_members


async def test_a_group_of_a_type_that_cannot_be_described_is_not_said_to_have_no_members() -> None:
    """Groups of a newer protocol are not there for any request: a gate that asks for members let them pass."""
    site = GroupSite(OFFSETS, types=dict.fromkeys(("g1", "g2"), "queue"), states={"g1": "Stable"})
    async with serving(site, "east") as at, Cluster(at) as cluster:
        found = await describe_groups(cluster, ["g0", "g1", "g2"])
    assert isinstance(found["g1"], GroupOfOtherType)
    assert found["g1"].group_type == "queue"
    assert "type queue" in str(found["g1"])
    assert isinstance(found["g2"], DescribedConsumerGroup)
    assert (found["g2"].state, found["g2"].protocol_type, found["g2"].members) == (GroupState.EMPTY, "queue", ())
    assert isinstance(found["g0"], DescribedConsumerGroup)
