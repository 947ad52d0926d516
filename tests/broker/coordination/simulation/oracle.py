"""What clients were told, and what each new coordinator has to know because of that."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from broker.coordination.internal_log import StateLog
from broker.groups.coordinator import GroupCoordinator
from broker.wire.coordinator_keys import OFFSETS_TOPIC, partition_for
from broker.wire.records import ControlKind, decode_control, decode_records
from broker.wire.vocabulary import TopicPartition
from tests.broker.coordination.simulation.site import FLIGHTS, INTERNAL_PARTITIONS, SimulatedBroker, Site
from tests.mirror.simulation.trace import Found


class Told:
    """Offsets, generations and epochs only rise."""

    def __init__(self) -> None:
        self.offsets: dict[tuple[str, TopicPartition], int] = {}
        self.assignments: dict[tuple[str, int], dict[str, bytes]] = defaultdict(dict)
        """Of classic groups: (group, generation) -> assignment of each member that was told."""
        self.epochs: dict[tuple[str, str], int] = {}
        """Of members of consumer groups."""
        self.ends: dict[str, bool] = {}
        """Transactions that were told to be committed, or aborted."""
        self.records: dict[str, set[str]] = defaultdict(set)
        """Records that were acknowledged, by transaction."""
        self.counts: dict[str, int] = defaultdict(int)

    def offset(self, group: str, where: TopicPartition, value: int) -> None:
        self.offsets[group, where] = max(value, self.offsets.get((group, where), -1))
        self.counts["offsets"] += 1

    def assignment(self, group: str, generation: int, member: str, told: bytes) -> None:
        earlier = self.assignments[group, generation].setdefault(member, told)
        if earlier != told:
            raise Found(f"{member} was given {earlier!r} and {told!r} in generation {generation}")
        self.counts["assignments"] += 1

    def epoch(self, group: str, member: str, epoch: int) -> None:
        self.epochs[group, member] = max(epoch, self.epochs.get((group, member), -1))
        self.counts["epochs"] += 1


class CheckedGroups(GroupCoordinator):
    """Told by whomever, known by the next: looked at when it is loaded."""

    told: Told
    is_newest: Callable[[], bool]
    """Whether nobody was elected after it: that one may have told more by now."""

    async def load(self) -> None:
        await super().load()
        if self.is_newest():
            self._check_offsets()
            self._check_groups()
            self.told.counts["loads"] += 1

    def _of_mine(self, group: str) -> bool:
        return partition_of(group) == self.log.index

    def _check_offsets(self) -> None:
        for (group, where), told in self.told.offsets.items():
            if self._of_mine(group):
                found = self.offsets.of(group).committed.get(where)
                known = -1 if found is None else found.offset
                if known < told:
                    raise Found(f"{self.log.name}: {group} was told {told} of {where}, the next one knows {known}")

    def _check_groups(self) -> None:
        for (name, generation), members in self.told.assignments.items():
            if not self._of_mine(name):
                continue
            group = self.groups.get(name)
            if group is None or group.generation_id < generation:
                raise Found(f"{name} was told of generation {generation}, the next coordinator knows {group}")
            for member_id, told in members.items():
                known = group.members.get(member_id)
                if group.generation_id == generation and known is not None and known.assignment != told:
                    raise Found(f"{member_id} was given {told!r}, the next coordinator gave it {known.assignment!r}")
        for (name, member_id), epoch in self.told.epochs.items():
            modern = self.consumer.groups.get(name) if self._of_mine(name) else None
            member = modern.members.get(member_id) if modern is not None else None
            if self._of_mine(name) and (modern is None or modern.epoch < epoch):
                raise Found(f"{member_id} of {name} was told epoch {epoch}, the next coordinator knows {modern}")
            if member is not None and member.epoch < epoch:
                raise Found(f"{member_id} of {name} was told epoch {epoch}, the next coordinator has {member.epoch}")


def partition_of(key: str) -> int:
    return partition_for(key, INTERNAL_PARTITIONS)


def checked(told: Told, broker: SimulatedBroker, log: StateLog) -> CheckedGroups:
    made = CheckedGroups(broker, log)
    made.told = told
    partition = broker.site.partitions[TopicPartition(OFFSETS_TOPIC, log.index)]
    made.is_newest = lambda: partition.log.leader_epoch == log.leader_epoch
    return made


def check_transactions(site: Site, told: Told) -> None:
    """Each transaction has one end, in all its partitions; what was told of it holds; none is left open."""
    decided: dict[str, bool] = {}
    committed: set[str] = set()
    for where in FLIGHTS:
        open_ones: dict[int, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        for header, batch in site.partitions[where].log.headers():
            if header.is_control:
                commit = decode_control(batch).kind is ControlKind.COMMIT
                for name, records in open_ones.pop(header.producer_id, {}).items():
                    if decided.setdefault(name, commit) != commit:
                        raise Found(f"{name} is committed in one partition and aborted in another")
                    committed |= records if commit else set()
            else:
                for record in decode_records(batch):
                    text = (record.value or b"").decode()
                    open_ones[header.producer_id][text.split("/")[0]].add(text)
        left = [name for names in open_ones.values() for name in names]
        if left:
            raise Found(f"{where} has records of {left}, which are never ended")
    for name, commit in told.ends.items():
        if decided.get(name, commit) != commit:
            raise Found(f"{name} was told commit={commit}, its markers say otherwise")
        lost = told.records[name] - committed if commit else set()
        if lost:
            raise Found(f"{name} was committed without {sorted(lost)}")
