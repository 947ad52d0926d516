"""What was written ahead of a commit that was refused does not count; of one whose answer was lost the next pass says.

Else a group that stands still at the source looks set back at the target for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest

from broker.client.cluster import Cluster
from broker.client.model import CommittedOffset
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.frames import RequestHeader
from broker.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from broker.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from broker.wire.schema import Message
from broker.wire.vocabulary import TopicPartition
from mirror.groups.sync import GroupSyncMemory, GroupSyncReport, sync_groups
from mirror.link import Link
from mirror.offsets.group_entries import GroupAction, GroupSync, Written
from mirror.offsets.intervals import End, Interval
from mirror.offsets.offset_map import OffsetMap, PartitionMap
from mirror.offsets.shared import GroupMap
from mirror.offsets.state_writer import Change
from tests.broker.client.group_site import GroupSite, serving

WHERE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
MAP = OffsetMap({("t", number): PartitionMap([Interval(0, 0)], End(100, 100), 100) for number in range(2)})
STOOD, SHORT, GOES_TO = 3, 6, 10


def at(offset: int, where: TopicPartition = WHERE) -> dict[TopicPartition, CommittedOffset]:
    return {where: CommittedOffset(offset)}


@dataclass
class West(GroupSite):
    """`ends`: whether a transaction that is to be committed is, when its end is not told; None: it is told.
    `takes_back`: whether one is when it is to be. `refuses`: a partition that it does not stage.
    """

    ends: bool | None = None
    refuses: TopicPartition | None = None
    joins: str = ""
    """A group that gets a member when somebody fences the groups."""
    changes: dict[str, dict[TopicPartition, CommittedOffset]] = field(default_factory=dict)
    """Where a job puts groups then."""

    def _answer(self, header: RequestHeader, message: Message) -> Message:
        if header.api_key == ApiKey.INIT_PRODUCER_ID:
            self.states |= {self.joins: "Stable"} if self.joins else {}
            self.offsets |= self.changes
        return super()._answer(header, message)

    def _stage(self, asked: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
        answer = super()._stage(asked)
        for topic in answer.topics:
            for one in topic.partitions:
                if (topic.name, one.partition_index) == self.refuses:
                    one.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                    self.staged[asked.group_id].pop(TopicPartition(*self.refuses), None)
        return answer

    def _end(self, asked: EndTxnRequest) -> EndTxnResponse:
        if self.ends is None:
            return super()._end(asked)
        super()._end(replace(asked, committed=asked.committed and self.ends))
        return EndTxnResponse(0, ErrorCode.UNKNOWN_SERVER_ERROR)


@dataclass
class World:
    """The group goes to GOES_TO in the west, where somebody else had put it to STOOD. `said` is the link's state."""

    is_shared: bool = False
    east: GroupSite = field(default_factory=lambda: GroupSite({"g": at(GOES_TO)}))
    west: West = field(default_factory=lambda: West({"g": at(STOOD)}))
    memory: GroupSyncMemory = field(default_factory=GroupSyncMemory)
    said: list[GroupSync] = field(default_factory=list)

    async def one_pass(self) -> GroupSyncReport:
        async def write(written: Sequence[Change]) -> None:
            self.said += [change for change in written if isinstance(change, GroupSync)]

        self.east.ports.clear()
        self.west.ports.clear()
        async with serving(self.east, "east") as source, serving(self.west, "west") as target:
            link = Link("l", source, target, ("t",), groups=(".*",), shared_targets=self.is_shared)
            back = replace(link, name="back", source=target, target=source)
            link = replace(link, reverse_links=(back,) if self.is_shared else ())

            async def load_map() -> GroupMap:
                return GroupMap(MAP, ((back, OffsetMap()),) if self.is_shared else ())

            async with Cluster(source) as here, Cluster(target) as there:
                return await sync_groups(link, here, there, load_map, self.memory, write)

    def is_succeeded(self) -> None:
        """Another worker finds what the state says."""
        self.memory = GroupSyncMemory({one.group: one for one in self.said})


def refused() -> West:
    return West({"g": at(STOOD)}, commit_errors={"g": ErrorCode.GROUP_AUTHORIZATION_FAILED})


REFUSED: dict[str, Callable[[], West]] = {
    "by its coordinator": refused,
    "as it has members": lambda: West({"g": at(STOOD)}, joins="g"),
    "as it changed": lambda: West({"g": at(STOOD)}, changes={"g": at(SHORT)}),
    "as its place takes no marker": lambda: West({"g": at(STOOD)}, leaders=[-1]),
}


@pytest.mark.parametrize(
    ("is_shared", "is_succeeded"), [(False, True), (True, False)], ids=["one way, another worker", "both ways"]
)
@pytest.mark.parametrize("why", REFUSED)
async def test_a_group_that_was_refused_is_moved_later_from_wherever_it_stands_then(
    why: str, *, is_succeeded: bool, is_shared: bool
) -> None:
    world = World(is_shared, west=REFUSED[why]())
    assert (await world.one_pass()).failures.keys() == {"g"}
    assert world.said[-1].written == {}, "the group stood nowhere that the link had put it"
    world.west.offsets["g"] = at(SHORT)
    world.west.commit_errors.clear()
    world.west.states.clear()
    world.west.leaders.clear()
    world.west.joins, world.west.changes = "", {}
    if is_succeeded:
        world.is_succeeded()
    report = await world.one_pass()
    assert (report.failures, [one.action for one in report.decisions]) == ({}, [GroupAction.COMMIT])
    assert world.west.offsets["g"] == at(GOES_TO)


@pytest.mark.parametrize("is_shared", [False, True], ids=["one way", "both ways"])
async def test_a_group_that_was_refused_again_and_again_is_moved_from_wherever_it_stands_then(is_shared: bool) -> None:
    """The state keeps what was written ahead then: else each pass would write it twice."""
    world = World(is_shared, west=refused())
    for _ in range(3):
        await world.one_pass()
    ahead = world.said[-1].written[WHERE]
    assert (ahead.target_offset, ahead.stood) == (GOES_TO, STOOD)
    world.west.offsets["g"] = at(SHORT)
    world.west.commit_errors.clear()
    await world.one_pass()
    assert world.west.offsets["g"] == at(GOES_TO)


@pytest.mark.parametrize("is_shared", [False, True], ids=["one way", "both ways"])
async def test_a_group_that_is_set_back_right_behind_its_commit_to_where_it_stood_before_stays_there(
    is_shared: bool,
) -> None:
    """That it was committed is known: this is no commit that never came."""
    world = World(is_shared)
    await world.one_pass()
    world.west.offsets["g"] = at(STOOD)
    for _ in range(2):
        (decision,) = (await world.one_pass()).decisions
        assert decision.action is GroupAction.SKIP_SET_BACK
    world.is_succeeded()
    (decision,) = (await world.one_pass()).decisions
    assert decision.action is GroupAction.SKIP_SET_BACK


async def test_another_worker_moves_it_from_where_it_was_refused_again_and_again() -> None:
    world = World(west=refused())
    for _ in range(3):
        await world.one_pass()
    world.west.commit_errors.clear()
    world.is_succeeded()
    await world.one_pass()
    assert world.west.offsets["g"] == at(GOES_TO)


@pytest.mark.parametrize(
    ("is_shared", "is_succeeded"), [(False, True), (True, False)], ids=["one way, another worker", "both ways"]
)
@pytest.mark.parametrize("is_committed", [False, True], ids=["not committed", "committed"])
async def test_what_became_of_a_commit_whose_answer_was_lost_is_found_by_the_next_pass(
    *, is_committed: bool, is_succeeded: bool, is_shared: bool
) -> None:
    world = World(is_shared, west=West({"g": at(STOOD)}, ends=is_committed))
    assert (await world.one_pass()).failures.keys() == {"g"}
    assert world.west.offsets["g"] == at(GOES_TO if is_committed else STOOD)
    world.west.ends = None
    if is_succeeded:
        world.is_succeeded()
    report = await world.one_pass()
    expected = GroupAction.UP_TO_DATE if is_committed else GroupAction.COMMIT
    assert (report.failures, [one.action for one in report.decisions]) == ({}, [expected])
    assert world.west.offsets["g"] == at(GOES_TO)
    world.east.offsets["g"] = at(SHORT)
    await world.one_pass()
    assert world.west.offsets["g"] == at(SHORT), "the link put it there, so it follows the source back"


async def test_where_it_is_not_known_whether_it_was_committed_a_group_that_stands_elsewhere_is_not_moved() -> None:
    """It may have been set back from there since, and forward it would skip what it is to read again."""
    world = World(west=West({"g": at(STOOD)}, ends=True))
    await world.one_pass()
    world.west.ends = None
    world.west.offsets["g"] = at(SHORT)
    (decision,) = (await world.one_pass()).decisions
    assert decision.action is GroupAction.SKIP_SET_BACK
    assert world.west.offsets["g"] == at(SHORT)


async def test_of_what_was_committed_in_part_the_next_pass_sees_which() -> None:
    world = World()
    world.east.offsets["g"] = at(GOES_TO) | at(GOES_TO, OTHER)
    world.west.offsets["g"] = at(STOOD) | at(STOOD, OTHER)
    world.west.refuses = OTHER
    assert (await world.one_pass()).failures.keys() == {"g"}
    assert world.west.offsets["g"] == at(GOES_TO) | at(STOOD, OTHER)
    world.west.refuses = None
    assert not (await world.one_pass()).failures
    assert world.west.offsets["g"] == at(GOES_TO) | at(GOES_TO, OTHER)
    await world.one_pass()
    assert world.memory.by_group["g"].written == {at: Written(GOES_TO, GOES_TO) for at in (WHERE, OTHER)}
