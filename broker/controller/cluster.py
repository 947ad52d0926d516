"""What the controller knows of its cluster, what follows from each event, and what is to be ordered. No I/O.

Every event is worked off in the same three steps: `Cluster` is told what is new; it says which partition states are
wanted; what the metadata store then holds of them is told to it (`take`), and only that is ordered. So orders never say
more than is written, and whatever is repeated, or found changed by somebody else, ends in the same place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from dataclasses import replace
from typing import NamedTuple

from broker.cluster.metadata import UNWRITTEN, Configs, LiveBroker, PartitionState, TopicState
from broker.cluster.orders import Failures, ReplicaLog
from broker.controller.elections import (
    Liveness,
    after_restarts,
    asked_leader,
    is_reassigned,
    preferred_leader,
    without_broker,
)
from broker.controller.reassignment import without
from broker.controller.undecided import hindrance, most_complete, undecided
from broker.topics.configs import value_of
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import NO_LEADER, TopicPartition, by_topic

States = dict[TopicPartition, PartitionState]
RestartedOf = Callable[[PartitionState], Set[int]]


class BrokersChanged(NamedTuple):
    """`came` also has those that were `restarted`: both have a new epoch."""

    came: frozenset[int]
    gone: frozenset[int]
    restarted: frozenset[int]


class Cluster:
    """`topics` are all that can be read, `unreadable` the names of the others; `brokers` those that are registered;
    `failed` the replicas that could not be opened, `reassigned` the partitions on their way to other replicas.
    """

    def __init__(self, topics: Mapping[str, TopicState], brokers: Mapping[int, LiveBroker]) -> None:
        self.topics = {name: topic for name, topic in topics.items() if not topic.damage}
        self.unreadable = topics.keys() - self.topics.keys()
        self._versions_unreadable = {name: topics[name].version for name in self.unreadable}
        self.brokers = dict(brokers)
        self.leaving: set[int] = set()
        self.defaults: Mapping[str, str] = {}
        """What holds for topics on which it is not set, as the controller's broker has it."""
        self.failed: dict[TopicPartition, set[int]] = {}
        self.logs: dict[TopicPartition, dict[int, ReplicaLog]] = {}
        """What replicas told of their logs, where the metadata are older than these, or undecided."""
        self.reassigned = {where for where, state in self.elected().items() if is_reassigned(state)}

    # -- what is known ---------------------------------------------------------------------------------------

    def state(self, where: TopicPartition) -> PartitionState | None:
        topic = self.topics.get(where.topic)
        if topic is None or not 0 <= where.partition < len(topic.partitions):
            return None
        return topic.partitions[where.partition]

    def assignment_version(self, name: str) -> int | None:
        topic = self.topics.get(name)
        return self._versions_unreadable.get(name) if topic is None else topic.version

    def elected_state(self, where: TopicPartition) -> PartitionState | None:
        """None also where nobody ever led it."""
        state = self.state(where)
        return None if state is None or state.version == UNWRITTEN else state

    def standing(self, wanted: States) -> tuple[set[TopicPartition], set[TopicPartition]]:
        """After `wanted` was written, and `take` told what came of it: which stand so, and which were changed by
        somebody else first. The others cannot be written.
        """
        done: set[TopicPartition] = set()
        again: set[TopicPartition] = set()
        for where, state in wanted.items():
            now = self.state(where)
            if now is None or now.version == state.version:
                continue
            as_wanted = (now.leader, now.leader_epoch, now.isr) == (state.leader, state.leader_epoch, state.isr)
            (done if as_wanted else again).add(where)
        return done, again

    def states(self, topics: Iterable[str] | None = None) -> Iterator[tuple[TopicPartition, PartitionState]]:
        """Of all topics, or of those named."""
        for name in self.topics if topics is None else topics:
            for index, state in enumerate(self.topics[name].partitions):
                yield TopicPartition(name, index), state

    def elected(self, topics: Iterable[str] | None = None) -> States:
        """The partitions that ever had a leader."""
        return {where: state for where, state in self.states(topics) if state.version != UNWRITTEN}

    def waiting(self) -> dict[str, list[int]]:
        """The partitions by topic that never had a leader, of which none has records: a creation was cut off."""
        return by_topic(where for where, state in self.states() if state.version == UNWRITTEN)

    # -- what is new -----------------------------------------------------------------------------------------

    def take(self, states: Mapping[TopicPartition, PartitionState]) -> None:
        """What the store holds."""
        changed: dict[str, dict[int, PartitionState]] = {}
        for where, state in states.items():
            if self.state(where) is not None:
                changed.setdefault(where.topic, {})[where.partition] = state
        for name, new in changed.items():
            topic = self.topics[name]
            partitions = tuple(new.get(index, state) for index, state in enumerate(topic.partitions))
            self.topics[name] = replace(topic, partitions=partitions)
        for where in self.logs.keys() & states.keys():
            # What was told before an epoch began is not what there was when it did.
            told = self.logs.pop(where)
            if left := {n: log for n, log in told.items() if log.leader_epoch >= states[where].leader_epoch}:
                self.logs[where] = left

    def take_assignment(self, topic: TopicState) -> None:
        """The replicas of its partitions, as the store holds them."""
        self.topics[topic.name] = topic
        for index, state in enumerate(topic.partitions):
            where = TopicPartition(topic.name, index)
            (self.reassigned.add if is_reassigned(state) else self.reassigned.discard)(where)

    def take_configs(self, name: str, configs: Configs) -> None:
        topic = self.topics.get(name)
        if topic is not None and configs.version > topic.config_version:
            self.topics[name] = replace(topic, configs=configs.values, config_version=configs.version)

    def forget(self, name: str) -> TopicState:
        gone = self.topics.pop(name)
        for index in range(len(gone.partitions)):
            self.failed.pop(TopicPartition(name, index), None)
            self.logs.pop(TopicPartition(name, index), None)
            self.reassigned.discard(TopicPartition(name, index))
        return gone

    def take_brokers(self, now: Mapping[int, LiveBroker]) -> BrokersChanged:
        gone = frozenset(self.brokers.keys() - now.keys())
        restarted = frozenset(
            node for node, broker in now.items() if node in self.brokers and self.brokers[node].epoch != broker.epoch
        )
        came = frozenset(now.keys() - self.brokers.keys()) | restarted
        self.brokers = dict(now)
        self.leaving -= gone | came
        self.failed = {where: left for where, nodes in self.failed.items() if (left := nodes - gone - came)}
        for told in self.logs.values():
            for node in gone | came:
                told.pop(node, None)
        return BrokersChanged(came, gone, restarted)

    # -- what is wanted --------------------------------------------------------------------------------------

    def elections_after_taking_over(self) -> States:
        """For a new controller: who was restarted since its partition's state was written shows by the epochs, also of
        those of whom the state says nothing itself.
        """

        def restarted(state: PartitionState) -> Set[int]:
            known = dict(state.isr_epochs)
            return {n for n in state.replicas if n not in known and self._epoch(n) > state.written_at}

        return self._wanted(self.elected(), restarted)

    def elections(self, among: Mapping[TopicPartition, PartitionState], restarted: Set[int] = frozenset()) -> States:
        return self._wanted(among, lambda state: restarted)

    def _epoch(self, node: int) -> int:
        broker = self.brokers.get(node)
        return -1 if broker is None else broker.epoch

    def _in_later_lives(self, state: PartitionState) -> Set[int]:
        """Who of the ISR was found in sync in an earlier life: its leader did not know yet that it was restarted."""
        return {node for node, epoch in state.isr_epochs if self._epoch(node) > epoch}

    def isr_epochs(self, state: PartitionState) -> tuple[tuple[int, int], ...]:
        """For a state that the controller writes: whoever is there is in the life that decided of it."""
        known = {**dict(state.isr_epochs), **{n: self.brokers[n].epoch for n in state.isr if n in self.brokers}}
        return tuple((node, known[node]) for node in state.isr if node in known)

    def _wanted(self, among: Mapping[TopicPartition, PartitionState], restarted: RestartedOf) -> States:
        brokers = Liveness(self.brokers.keys(), self.leaving)
        wanted: States = {}
        for where, state in among.items():
            present, logs = self._present(where, brokers), self.logs.get(where, {})
            if any(log.leader_epoch > state.leader_epoch for log in logs.values()):
                wanted[where] = undecided(state, logs.values())
                continue
            if state.is_undecided:
                after = most_complete(state, logs, present, unclean=self._unclean(where.topic))
                if after is not state:
                    wanted[where] = after
                continue
            back = restarted(state) | self._in_later_lives(state)
            after = after_restarts(state, present, back, unclean=self._unclean(where.topic))
            if after.leader == NO_LEADER and where in self.failed and state.leader in brokers.live:
                # It is there, and says what is damaged; without a leader nobody would.
                continue
            if after is not state:
                wanted[where] = after
        return wanted

    def _present(self, where: TopicPartition, brokers: Liveness) -> Liveness:
        failed = self.failed.get(where)
        return brokers if failed is None else Liveness(brokers.live - failed, brokers.leaving)

    def _unclean(self, topic: str) -> bool:
        return value_of({**self.defaults, **self.topics[topic].configs}, "unclean.leader.election.enable") == "true"

    def preferred_elections(self, wheres: Collection[TopicPartition]) -> States:
        brokers = Liveness(self.brokers.keys(), self.leaving)
        wanted: States = {}
        for where in wheres:
            state = self.elected_state(where)
            if state is None:
                continue
            after = preferred_leader(state, self._present(where, brokers))
            if after is not None and after is not state:
                wanted[where] = after
        return wanted

    def asked_elections(
        self, wheres: Collection[TopicPartition], *, unclean: bool
    ) -> tuple[States, dict[TopicPartition, ErrorCode]]:
        """What a client's wish for other leaders amounts to, and of which partitions it comes to nothing, and why."""
        brokers = Liveness(self.brokers.keys(), self.leaving)
        wanted: States = {}
        refused: dict[TopicPartition, ErrorCode] = {}
        for where in wheres:
            state = self.elected_state(where)
            if state is None:
                refused[where] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            present = self._present(where, brokers)
            found: PartitionState | ErrorCode
            if unclean and state.is_undecided:
                after = most_complete(state, self.logs.get(where, {}), present, unclean=True)
                found = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE if after is state else after
            else:
                found = asked_leader(state, present, unclean=unclean)
            if isinstance(found, ErrorCode):
                refused[where] = found
            else:
                wanted[where] = found
        return wanted, refused

    def elections_without(self, dropped: Mapping[TopicPartition, Set[int]]) -> States:
        """Each partition in a new leader epoch, and its ISR without those that are `dropped`. It stays out where nobody
        else could lead it.
        """
        brokers = Liveness(self.brokers.keys(), self.leaving)
        wanted: States = {}
        for where, nodes in dropped.items():
            state = self.elected_state(where)
            after = None if state is None else without(state, nodes, self._present(where, brokers))
            if after is not None:
                wanted[where] = after
        return wanted

    def imbalanced(self, max_percent: float) -> set[TopicPartition]:
        """The partitions that others than their first replicas lead, of brokers that lack more than this part of those
        that are their own. Those that are being reassigned are left alone.
        """
        own: dict[int, int] = {}
        elsewhere: dict[int, set[TopicPartition]] = {}
        for where, state in self.elected().items():
            first = state.replicas[0]
            own[first] = own.get(first, 0) + 1
            if state.leader != first and not is_reassigned(state):
                elsewhere.setdefault(first, set()).add(where)
        return {
            where
            for node, lacking in elsewhere.items()
            if node in self.brokers and len(lacking) * 100 > own[node] * max_percent
            for where in lacking
        }

    def elections_for_leaving(self, node: int) -> States:
        """For a controlled shutdown: every partition that another replica can lead, led by that, and without this
        broker in the ISR of the others. Partitions of which it is the last in sync stay.
        """
        self.leaving.add(node)
        brokers = Liveness(self.brokers.keys(), self.leaving)
        wanted: States = {}
        for where, state in self.elected().items():
            after = without_broker(state, node, self._present(where, brokers))
            if after is not None and after is not state:
                wanted[where] = after
        return wanted

    def still_led_by(self, node: int) -> set[TopicPartition]:
        return {where for where, state in self.states() if state.leader == node}

    # -- replicas that failed ------------------------------------------------------------------------------------

    def take_answer(
        self, node: int, ordered: Mapping[TopicPartition, PartitionState], failures: Failures
    ) -> list[TopicPartition]:
        """What a broker said to an order -> of these another replica should lead. A replica that failed counts as gone
        until its broker is restarted, it leads after all, or a leader finds it in sync again.
        """
        damaged = [w for w, code in failures.items() if code is ErrorCode.KAFKA_STORAGE_ERROR and self.state(w)]
        for where in damaged:
            self.failed.setdefault(where, set()).add(node)
        for where, state in ordered.items():
            if state.leader == node and where not in failures:
                self._works(where, {node})
        return damaged

    def take_joined(self, states: Mapping[TopicPartition, PartitionState]) -> None:
        """What leaders have written: who is in sync now, and was not, has a disk that works."""
        for where, state in states.items():
            if (before := self.state(where)) is not None:
                self._works(where, set(state.isr).difference(before.isr))
        self.take(states)

    def _works(self, where: TopicPartition, nodes: Set[int]) -> None:
        if where in self.failed and not self.failed[where].difference(nodes):
            del self.failed[where]
        elif where in self.failed:
            self.failed[where] -= nodes

    def elections_without_failed(self, wheres: Collection[TopicPartition]) -> States:
        return self.elections({w: state for w in wheres if (state := self.elected_state(w)) is not None})

    def still_failed(self, node: int, wheres: Collection[TopicPartition]) -> list[TopicPartition]:
        return [where for where in wheres if node in self.failed.get(where, ())]

    # -- metadata that are older than the logs --------------------------------------------------------------------

    def take_logs(self, node: int, logs: Mapping[TopicPartition, ReplicaLog]) -> States:
        """What a replica told that it has, where that may count -> the elections."""
        among: States = {}
        for where, log in logs.items():
            state = self.elected_state(where)
            if state is None or node not in state.replicas or log.leader_epoch < state.leader_epoch:
                continue
            if state.is_undecided or log.leader_epoch > state.leader_epoch:
                self.logs.setdefault(where, {})[node] = log
                self._works(where, {node})
                among[where] = state
        return self.elections(among)

    def hindrance(self, where: TopicPartition) -> str | None:
        """Why nobody leads a partition that is undecided, and of which all that are there have told their logs."""
        state, logs = self.elected_state(where), self.logs.get(where, {})
        if state is None or not state.is_undecided:
            return None
        present = self._present(where, Liveness(self.brokers.keys()))
        return hindrance(state, logs) if logs.keys() >= present.live & set(state.replicas) else None
