"""A leader is in sync and there; what was acknowledged is never given to one that lacks it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from broker.cluster.metadata import PartitionState
from broker.controller.elections import (
    Liveness,
    after_brokers_changed,
    after_restarts,
    asked_leader,
    first_leader,
    preferred_leader,
    without_broker,
)
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import NO_LEADER

NODES = range(5)


@st.composite
def states(draw: st.DrawFn) -> PartitionState:
    replicas = tuple(draw(st.permutations(NODES))[: draw(st.integers(1, 5))])
    isr = tuple(node for node in replicas if draw(st.booleans())) or replicas[:1]
    leader = draw(st.sampled_from([*isr, NO_LEADER]))
    return PartitionState(leader, draw(st.integers(0, 9)), replicas, isr)


@st.composite
def brokers(draw: st.DrawFn) -> Liveness:
    live = draw(st.frozensets(st.sampled_from(NODES)))
    return Liveness(live, draw(st.frozensets(st.sampled_from(sorted(live)))) if live else frozenset())


@given(states(), brokers(), st.booleans())
def test_after_any_change_of_brokers_the_leader_is_there_and_in_sync(
    state: PartitionState, live: Liveness, unclean: bool
) -> None:
    after = after_brokers_changed(state, live, unclean=unclean)
    assert after.replicas == state.replicas
    assert after.isr
    assert set(after.isr) <= set(state.replicas)
    if after.leader == NO_LEADER:
        reachable = state.replicas if unclean else state.isr
        assert not set(reachable) & set(live.live)
        assert after.isr == state.isr, "all that were in sync last may lead again"
    else:
        assert after.leader in after.isr
        assert set(after.isr) <= set(live.live)
    if set(after.isr) - set(state.isr):
        assert unclean
        assert len(after.isr) == 1
        assert not set(state.isr) & set(live.live)
    changed = (after.leader, after.isr) != (state.leader, state.isr)
    assert after.leader_epoch == state.leader_epoch + changed
    assert (after is state) == (not changed)


@given(states(), brokers(), st.booleans())
def test_a_second_look_at_the_same_brokers_changes_nothing(
    state: PartitionState, live: Liveness, unclean: bool
) -> None:
    after = after_brokers_changed(state, live, unclean=unclean)
    assert after_brokers_changed(after, live, unclean=unclean) is after


@given(states(), brokers())
def test_a_leader_that_stays_is_left_alone(state: PartitionState, live: Liveness) -> None:
    assume(state.leader != NO_LEADER)
    live = Liveness(live.live | {state.leader}, live.leaving)
    assert after_brokers_changed(state, live, unclean=True).leader == state.leader


@given(states(), brokers())
def test_a_new_leader_is_one_that_does_not_stop_where_there_is_one(state: PartitionState, live: Liveness) -> None:
    live = Liveness(live.live - {state.leader}, live.leaving - {state.leader})
    after = after_brokers_changed(state, live, unclean=False)
    if set(after.isr) & set(live.staying):
        assert after.leader in live.staying or after is state


@given(states(), brokers())
def test_the_preferred_replica_leads_only_in_sync(state: PartitionState, live: Liveness) -> None:
    after = preferred_leader(state, live)
    preferred = state.replicas[0]
    if state.leader == preferred:
        assert after is state
    elif preferred in state.isr and preferred in live.staying:
        assert after == replace(state, leader=preferred, leader_epoch=state.leader_epoch + 1)
    else:
        assert after is None


@given(states(), brokers(), st.sampled_from(NODES))
def test_a_broker_that_stops_leads_nothing_and_is_waited_for_by_nobody(
    state: PartitionState, live: Liveness, node: int
) -> None:
    live = Liveness(live.live | {node}, live.leaving | {node})
    after = without_broker(state, node, live)
    if node not in state.isr:
        assert after is state
    elif after is None:
        assert not (set(state.isr) - {node}) & set(live.staying), "it may go only when another has it all"
    else:
        assert node not in after.isr
        assert after.leader in after.isr
        assert set(after.isr) <= set(live.live)
        assert after.leader_epoch == state.leader_epoch + 1


@given(states(), brokers(), st.booleans(), st.data())
def test_who_was_restarted_leads_on_only_in_a_new_epoch_and_only_where_no_other_is_in_sync(
    state: PartitionState, live: Liveness, unclean: bool, data: st.DataObject
) -> None:
    restarted = data.draw(st.frozensets(st.sampled_from(sorted(live.live)))) if live.live else frozenset()
    after = after_restarts(state, live, restarted, unclean=unclean)
    if after.leader in restarted:
        assert after.leader_epoch == state.leader_epoch + 1
        assert not set(state.isr) & (set(live.live) - restarted), "another one surely has everything"
    if set(state.isr) & (set(live.live) - restarted):
        assert not set(after.isr) & restarted
    if not restarted & {state.leader, *state.isr}:
        assert after == after_brokers_changed(state, live, unclean=unclean)
    if set(after.isr) - set(state.isr):
        assert unclean
        assert not set(state.isr) & set(live.live)
    assert (after.leader == NO_LEADER) == (not set(state.replicas if unclean else state.isr) & set(live.live))
    assert after.leader_epoch - state.leader_epoch == (after is not state)


@given(states(), st.frozensets(st.sampled_from(NODES)))
def test_a_new_partition_counts_only_who_has_its_folder(state: PartitionState, ready: frozenset[int]) -> None:
    led = first_leader(state, ready)
    if led is None:
        assert not ready & set(state.replicas)
    else:
        assert set(led.isr) == ready & set(state.replicas)
        assert (led.leader, led.leader_epoch) == (led.isr[0], 0)


@given(states(), brokers())
def test_a_first_replica_leads_when_it_is_asked_for_and_may(state: PartitionState, live: Liveness) -> None:
    found, first = asked_leader(state, live, unclean=False), state.replicas[0]
    if first == state.leader:
        assert found is ErrorCode.ELECTION_NOT_NEEDED
    elif first not in state.isr or first not in live.staying:
        assert found is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    else:
        assert found == replace(state, leader=first, leader_epoch=state.leader_epoch + 1)


@given(states(), brokers())
def test_an_unclean_election_is_for_those_without_a_leader(state: PartitionState, live: Liveness) -> None:
    found = asked_leader(state, live, unclean=True)
    if state.leader in live.live:
        assert found is ErrorCode.ELECTION_NOT_NEEDED
    elif not set(state.replicas) & live.live:
        assert found is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    else:
        assert isinstance(found, PartitionState)
        assert found.leader in live.live & set(found.isr)
        assert found.leader_epoch == state.leader_epoch + 1
        if set(state.isr) & live.live:
            assert found.leader in state.isr, "one in sync is there"


def test_a_replica_that_is_being_added_leads_last() -> None:
    state = PartitionState(NO_LEADER, 3, (3, 1, 2), (2,), adding_replicas=(3,), removing_replicas=(2,))
    assert after_brokers_changed(state, Liveness({1, 3}), unclean=True).leader == 1
    assert after_brokers_changed(state, Liveness({3}), unclean=True).leader == 3
