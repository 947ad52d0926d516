"""Reassignments carried out: each step is written so that a controller that follows finds where it was.

Replicas that come are written before anybody counts on them; replicas that go have first left the ISR, in a new leader
epoch, so that no leader can take them in again; only then are they taken off the assignment, and told to go.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import replace

from broker.controller.cluster import Cluster
from broker.controller.errors import NoReassignment
from broker.controller.issuing import removal_orders
from broker.controller.reassignment import Assignment, arrived, assignment_of, called_off, moving
from broker.controller.reign import Reign
from broker.controller.requests import Outcomes
from broker.errors import BrokerError
from broker.topics.errors import InvalidReplicaAssignment, UnknownTopic
from broker.wire.vocabulary import TopicPartition

log = logging.getLogger(__name__)

Dropped = dict[TopicPartition, Set[int]]
"""Of partitions: the replicas that go."""


async def alter_reassignments(reign: Reign, wanted: Mapping[TopicPartition, Sequence[int] | None]) -> Outcomes:
    """See ControllerRequests.alter_reassignments."""
    outcomes: dict[TopicPartition, BrokerError | None] = dict.fromkeys(wanted)
    moves: dict[TopicPartition, Assignment] = {}
    async with reign.turn:
        for where, target in wanted.items():
            try:
                moves[where] = _checked(reign.cluster, where, target)
            except BrokerError as error:
                outcomes[where] = error
        refused = await _move(reign, moves)
        outcomes |= {where: _none_in_sync(where) for where in refused}
        await settle(reign)
    return outcomes


def reassignments(cluster: Cluster, wheres: Collection[TopicPartition] | None) -> dict[TopicPartition, Assignment]:
    """Those that are under way, of all or of those named."""
    states = {where: cluster.state(where) for where in sorted(cluster.reassigned) if wheres is None or where in wheres}
    return {where: assignment_of(state) for where, state in states.items() if state is not None}


async def resume(reign: Reign) -> None:
    """What an earlier controller began: it may have told nobody of the replicas that come. In the reign's turn."""
    if not reign.cluster.reassigned:
        return
    await _begin_epochs(reign, {where: frozenset() for where in reign.cluster.reassigned})
    reign.announce(reign.cluster.reassigned)
    await settle(reign)


async def take_written(reign: Reign) -> None:
    """What tools of Kafka before 2.4 asked for by writing it into the store. It stands there while it is under way, by
    which those tools know. In the reign's turn.
    """
    written = await reign.store.reassignments()
    moves: dict[TopicPartition, Assignment] = {}
    for where, target in written.items():
        if reign.written_moves.get(where) == target:
            continue
        try:
            assignment = _checked(reign.cluster, where, target)
        except BrokerError as error:
            _comes_to_nothing(error)
        else:
            if not _stands(reign.cluster, where, assignment):
                moves[where] = assignment
    for where in await _move(reign, moves):
        _comes_to_nothing(_none_in_sync(where))
    reign.written_moves = written
    await settle(reign)


def _comes_to_nothing(error: BrokerError) -> None:
    log.warning("a reassignment that was written into the metadata store comes to nothing: %s", error)


def _stands(cluster: Cluster, where: TopicPartition, assignment: Assignment) -> bool:
    return (state := cluster.state(where)) is not None and assignment_of(state) == assignment


async def settle(reign: Reign) -> None:
    """Ends the reassignments that have arrived. In the reign's turn."""
    states = {where: reign.cluster.state(where) for where in reign.cluster.reassigned}
    found = {where: arrived(state) for where, state in states.items() if state is not None}

    def still_arrived(where: TopicPartition) -> bool:
        return (state := reign.cluster.state(where)) is not None and arrived(state) is not None

    await _move(reign, {where: to for where, to in found.items() if to is not None}, still_arrived)
    left = {where: to for where, to in reign.written_moves.items() if where in reign.cluster.reassigned}
    if left != reign.written_moves:
        await reign.store.set_reassignments(reign.controller, left)
        reign.written_moves = left


def _always(_where: TopicPartition) -> bool:
    return True


async def _move(
    reign: Reign, wanted: Mapping[TopicPartition, Assignment], is_due: Callable[[TopicPartition], bool] = _always
) -> set[TopicPartition]:
    """Those that must stay as they are, because nobody else than who would go is in sync and there. `is_due` is asked
    again of each whose leader changed the ISR meanwhile.
    """
    dropped: Dropped = {}
    for where, assignment in wanted.items():
        if (state := reign.cluster.state(where)) is not None:
            dropped[where] = set(state.replicas) - set(assignment.replicas)
    refused = await _begin_epochs(reign, {where: nodes for where, nodes in dropped.items() if nodes}, is_due)
    moved = {where: wanted[where] for where in dropped if where not in refused}
    await _assign(reign, moved)
    await _begin_epochs(reign, {where: nodes for where, nodes in dropped.items() if not nodes})
    if moved:
        reign.announce(moved)
    for node, order in removal_orders(reign.cluster, reign.controller, {w: dropped[w] for w in moved}).items():
        reign.queues[node].put(order)
    return refused


async def _begin_epochs(
    reign: Reign, dropped: Dropped, is_due: Callable[[TopicPartition], bool] = _always
) -> set[TopicPartition]:
    """A new leader epoch of each, without `dropped` in the ISR -> those for which there is none."""
    refused: set[TopicPartition] = set()
    left = dict(dropped)
    while left:
        wanted = reign.cluster.elections_without(left)
        refused |= left.keys() - wanted.keys()
        await reign.write(wanted)
        done, again = reign.cluster.standing(wanted)
        refused |= wanted.keys() - done - again
        refused |= {where for where in again if not is_due(where)}
        again -= refused
        left = {where: dropped[where] for where in again}
    return refused


async def _assign(reign: Reign, wanted: Mapping[TopicPartition, Assignment]) -> None:
    """Topic by topic; each is written at once."""
    for name in dict.fromkeys(where.topic for where in wanted):
        topic = reign.cluster.topics[name]
        partitions = list(topic.partitions)
        for index, state in enumerate(partitions):
            if (new := wanted.get(TopicPartition(name, index))) is not None:
                partitions[index] = replace(
                    state, replicas=new.replicas, adding_replicas=new.adding, removing_replicas=new.removing
                )
        changed = replace(topic, partitions=tuple(partitions))
        reign.cluster.take_assignment(await reign.store.set_assignment(reign.controller, changed))


def _checked(cluster: Cluster, where: TopicPartition, target: Sequence[int] | None) -> Assignment:
    """Raises UnknownTopic, NoReassignment, InvalidReplicaAssignment."""
    state = cluster.elected_state(where)
    if state is None:
        raise UnknownTopic(f"The partition {where} does not exist, or has never had a leader.")
    if target is None:
        if where not in cluster.reassigned:
            raise NoReassignment(f"{where} is not being reassigned.")
        return called_off(state)
    if not target or len(set(target)) != len(target):
        raise InvalidReplicaAssignment(f"Replicas {list(target)} of {where}: none, or one twice.")
    if missing := [node for node in target if node not in cluster.brokers]:
        raise InvalidReplicaAssignment(
            f"Replicas {list(target)} of {where}: broker {missing[0]} is not there, but {sorted(cluster.brokers)} are."
        )
    return moving(state, target)


def _none_in_sync(where: TopicPartition) -> InvalidReplicaAssignment:
    return InvalidReplicaAssignment(
        f"{where}: none of the replicas that would stay is in sync and there; records would be lost.",
        hint="start the brokers of the other replicas, and ask again when one of them is in sync",
    )
