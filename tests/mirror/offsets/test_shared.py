"""Groups of two sites that write the same topics.

A model of two logs, of two links with real maps, and of one group that reads at either site and is carried both ways by
the real decisions. Wherever a link puts the group: no record that it has not read lies behind it; it comes to rest; and
there it stands at the first record that it has not read, at both sites.
"""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirror.offsets.group_entries import GroupAction
from mirror.offsets.intervals import End
from mirror.offsets.offset_map import OffsetMap, PartitionMap
from mirror.offsets.shared import Examined, GroupMap
from tests.mirror.offsets.two_sites import BACK, NOTHING, WHERE, Sites, nothing_to_read, set_back_to, two
from tests.worlds import first_worlds

EXAMPLES = first_worlds(80, of=600)

VERBS = (
    "write",
    "write",
    "marker",
    "abort",
    "fence",
    "step",
    "move",
    "move",
    "acknowledge",
    "consume",
    "look",
    "carry",
    "announce",
)
steps = st.lists(st.tuples(st.sampled_from(VERBS), st.sampled_from("ew"), st.integers(1, 4)), max_size=60)


@settings(max_examples=EXAMPLES)
@given(steps, st.booleans())
def test_nothing_unread_is_left_out_and_all_comes_to_rest_at_the_first_unread_record(
    run: list[tuple[str, str, int]], fenced_first: bool
) -> None:
    """Also where a link has brought nothing since it began, and its own end stays where it was."""
    sites = Sites()
    for step in [*[("fence", at, 1) for at in "ew" if fenced_first], *run]:
        sites.apply(*step)
    for at in "" if fenced_first else "ew":
        sites.links[at].fence()
    sites.settle()
    for _ in range(3):
        actions = {sites.carry(at) for at in "ew"}
    assert actions <= {GroupAction.UP_TO_DATE, None}, "two links drive the group to and fro"
    said = copy.deepcopy(sites.written)
    for at in "ew":
        sites.carry(at)
    assert sites.written == said, "nothing is written where nothing happens"
    for at, offset in sites.committed.items():
        found = f"{at}: stands at {offset}, the first unread is {sites.first_unread(at)}"
        assert nothing_to_read(sites.logs[at], offset, sites.first_unread(at)), found


@given(steps, st.integers(0, 30))
def test_a_group_that_has_read_at_one_site_only_lands_there_where_it_began(
    run: list[tuple[str, str, int]], count: int
) -> None:
    sites = Sites()
    for verb, at, number in run:
        if verb not in ("consume", "carry"):
            sites.apply(verb, at, number)
    for at in "ew":
        sites.links[at].fence()
    sites.settle()
    sites.consume("e", count)
    began = sites.committed["e"]
    for at in "ewew":
        sites.carry(at)
    assert nothing_to_read(sites.logs["e"], began, sites.committed["e"])


@settings(max_examples=EXAMPLES)
@given(steps, st.sampled_from("ew"), st.integers(0, 30), st.lists(st.sampled_from("ew"), max_size=4))
def test_a_group_set_back_at_either_site_goes_back_at_both(
    run: list[tuple[str, str, int]], at: str, offset: int, order: list[str]
) -> None:
    """What it is to read again is unread again; whichever link looks first does not undo it."""
    sites = Sites()
    for step in run:
        sites.apply(*step)
    for site in "ew":
        sites.links[site].fence()
    sites.settle()
    for site in "ewewew":
        sites.carry(site)
    began = sites.committed.get(at, 0)
    back_to = min(offset, began)
    if back_to == began:
        return
    set_back_to(sites, at, back_to)
    for site in [*order, *"ewewew"]:
        sites.carry(site)
    assert nothing_to_read(sites.logs[at], back_to, sites.committed[at]), "it was not undone, and went no further"
    for site, stands_at in sites.committed.items():
        assert stands_at <= sites.first_unread(site) or nothing_to_read(
            sites.logs[site], sites.first_unread(site), stands_at
        ), f"{site}: stands at {stands_at}"


@settings(max_examples=EXAMPLES)
@given(steps, st.integers(0, 30))
def test_what_a_group_comes_to_that_it_has_read_at_the_source_is_told_by_the_map(
    run: list[tuple[str, str, int]], offset: int
) -> None:
    """By content: which records behind its place at the target stand before its place at the source."""
    sites = Sites()
    for step in run:
        sites.apply(*step)
    for at in "ew":
        sites.links[at].fence()
    sites.settle()
    stands_at = min(offset, len(sites.logs["e"]))
    goes_to = sites.group_map("e").to_target(*WHERE, stands_at)
    assert goes_to is not None
    told = sites.group_map("e").read_at_source(*WHERE, stands_at, goes_to)
    read = set(sites.logs["e"][:stands_at]) - NOTHING
    assert [n for n, record in enumerate(sites.logs["w"]) if n >= goes_to and record in read] == [
        n for span in told or () for n in span
    ]


@settings(max_examples=EXAMPLES)
@given(steps, st.integers(0, 30), st.integers(0, 30), st.booleans())
def test_what_is_said_to_hold_nothing_that_anybody_reads_holds_no_record(
    run: list[tuple[str, str, int]], start: int, length: int, settled: bool
) -> None:
    """Also amid all, where the maps do not know all records yet. Of nothing but markers at the end none counts."""
    sites = Sites()
    for step in run:
        sites.apply(*step)
    if settled:
        for at in "ew":
            sites.links[at].fence()
        sites.settle()
        sites.look("e")
    log, found = sites.logs["w"], sites.group_map("e")
    start = min(start, len(log))
    stop = min(start + length, len(log))
    end = found.end_of_records(*WHERE, start, stop)
    assert start <= end <= stop
    assert nothing_to_read(log, end, stop)
    if settled:
        assert end == start or log[end - 1] not in NOTHING


def test_what_is_in_another_order_at_the_target_is_told_to_be_read_again() -> None:
    """Each site appended the other's behind its own."""
    sites = two("e0 e1 e2 e3 w0 w1 w2", "w0 w1 w2 e0 e1 e2 e3")
    sites.look("e")
    found = sites.group_map("e")
    assert (found.to_target(*WHERE, 2), found.read_at_source(*WHERE, 2, 0)) == (0, (range(3, 5),))
    assert (found.to_target(*WHERE, 6), found.read_at_source(*WHERE, 6, 2)) == (2, (range(3, 7),))
    assert found.read_at_source(*WHERE, 7, 7) == ()


def test_what_would_take_too_long_to_tell_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirror.offsets.shared.READ_RUNS_MAX", 2)
    sites = two("e0 w0 e1 w1 e2 w2 e3", "w3 e0 w0 e1 w1 e2 w2 e3")
    sites.look("e")
    assert sites.group_map("e").read_at_source(*WHERE, 7, 0) is None


carries = st.lists(st.sampled_from("ew"), max_size=3)


@settings(max_examples=EXAMPLES)
@given(steps, st.lists(st.tuples(st.integers(1, 4), carries), min_size=1, max_size=3), st.integers(0, 30), carries)
def test_a_group_that_reads_at_one_site_and_is_set_back_there_goes_back_at_both_however_far_the_links_are(
    run: list[tuple[str, str, int]], reads: list[tuple[int, list[str]]], offset: int, order: list[str]
) -> None:
    """Neither link need have seen it at rest: what stands at the other site is what the link there put."""
    sites = Sites()
    for verb, at, number in run:
        if verb not in ("consume", "carry"):
            sites.apply(verb, at, number)
    for at in "ew":
        sites.links[at].fence()
    sites.settle()
    for count, looks in reads:
        sites.consume("e", count)
        for at in looks:
            sites.carry(at)
    back_to = min(offset, sites.committed["e"])
    set_back_to(sites, "e", back_to)
    for at in [*order, *"ewewew"]:
        sites.carry(at)
    assert nothing_to_read(sites.logs["e"], back_to, sites.committed["e"]), "it was not undone, and went no further"
    if "w" in sites.committed:
        first = sites.first_unread("w")
        assert sites.committed["w"] <= first or nothing_to_read(sites.logs["w"], first, sites.committed["w"])


@settings(max_examples=EXAMPLES)
@given(steps, st.lists(st.tuples(st.integers(1, 4), carries), min_size=1, max_size=3), st.integers(0, 30), carries)
def test_a_group_that_was_set_back_where_a_link_had_brought_it_goes_back_at_both(
    run: list[tuple[str, str, int]], reads: list[tuple[int, list[str]]], offset: int, order: list[str]
) -> None:
    """It read at the other site only. The link from where it is set back need not have seen it before."""
    sites = Sites()
    for verb, at, number in run:
        if verb not in ("consume", "carry"):
            sites.apply(verb, at, number)
    for at in "ew":
        sites.links[at].fence()
    sites.settle()
    for count, looks in reads:
        sites.consume("w", count)
        for at in [*looks, "w", "w"]:
            sites.carry(at)
    back_to = min(offset, sites.committed["e"])
    set_back_to(sites, "e", back_to)
    for at in [*order, *"ewewew"]:
        sites.carry(at)
    assert nothing_to_read(sites.logs["e"], back_to, sites.committed["e"]), "it was not undone, and went no further"
    first = sites.first_unread("w")
    assert sites.committed["w"] <= first or nothing_to_read(sites.logs["w"], first, sites.committed["w"])


def test_a_set_back_that_came_from_the_other_site_is_not_carried_back_there() -> None:
    """It would go further back than was asked for, by how far the two logs differ in their order: to the beginning."""
    sites = two("e0 e1 e2 e3 w0 w1 w2 w3", "w0 w1 w2 w3 e0 e1 e2 e3")
    for at in "ew":
        sites.look(at)
    sites.consume("w", 6)
    for site in "wewe":
        sites.carry(site)
    assert sites.committed == {"e": 2, "w": 6}
    set_back_to(sites, "w", 3)
    for site in "ewewewew":
        sites.carry(site)
    assert sites.committed == {"e": 0, "w": 3}, "w3, e0 and e1 are read again, and nothing else"


@pytest.mark.parametrize("again", [1, 2, 3])
def test_a_group_that_reads_on_to_where_it_stood_before_a_set_back_at_the_other_site_is_carried_again(
    again: int,
) -> None:
    """The link from there had not looked in between: of its own pair, older than the set-back that the reverse link
    carried, the target looked set back, and the group stayed there.
    """
    sites = two("e0 e1 e2 e3", "e0 e1 e2 e3")
    for at in "ew":
        sites.look(at)
    sites.consume("e", 2)
    for at in "ewewe":
        sites.carry(at)
    set_back_to(sites, "w", 0)
    for at in "ww":
        sites.carry(at)
    assert sites.committed == {"e": 0, "w": 0}
    sites.consume("e", again)
    assert sites.carry("e") is GroupAction.COMMIT, "also where the reverse link runs no more"
    assert sites.committed == {"e": again, "w": again}


@pytest.mark.parametrize("stood", [None, 1])
def test_a_group_whose_commit_never_came_is_moved_by_the_next_pass(stood: int | None) -> None:
    """Refused, or its worker died: what had been written ahead of it looked as if the group had been set back."""
    sites = two("e0 e1 e2 e3", "e0 e1 e2 e3")
    for at in "ew":
        sites.look(at)
    if stood is not None:
        sites.consume("w", stood)
    sites.consume("e", 3)
    assert sites.carry("e", commits=False) is GroupAction.COMMIT
    assert sites.carry("e") is GroupAction.COMMIT
    assert sites.committed == {"e": 3, "w": 3}


def test_a_group_goes_on_at_the_first_record_of_either_kind_that_it_has_not_read() -> None:
    sites = two("e0 e1 w0 e2 e3 w1", "w0 e0 e1 w1 e2 e3")
    sites.look("e")
    assert sites.links["e"].map.to_target(3) == 4, "behind w1, which the group has not read"
    assert sites.group_map("e").to_target(*WHERE, 3) == 3
    assert sites.group_map("e").to_target(*WHERE, 3, read_to=4) == 4, "w1 was read there"
    assert sites.group_map("e").to_target(*WHERE, 3, read_to=5) == 5, "and so was e2"
    assert sites.group_map("e").to_target(*WHERE, 6) == 6
    sites = two("e0 w0 w1 e1 w2", "e0 w0 w1 e1 w2")
    sites.look("e")
    assert sites.group_map("e").to_target(*WHERE, 5) == 5, "all was read, also what the target wrote last"


def test_a_reverse_link_that_never_ran_sends_no_group_to_the_beginning() -> None:
    """It has brought nothing, so whatever is not this link's own is unread; but markers are nobody's records."""
    sites = two("e0 e1 e2 e3", "- e0 e1 - e2 e3")
    assert sites.group_map("e").to_target(*WHERE, 3) == 5
    assert sites.group_map("e").to_target(*WHERE, 4) == 6
    sites = two("e0 e1 e2 e3", "- e0 e1 - w0 e2 e3")
    assert sites.group_map("e").to_target(*WHERE, 3) == 4, "w0 was never brought to the east"


def test_what_retention_deleted_at_the_target_is_nobodys_to_read() -> None:
    """A group that were sent there would find its offset out of range, and start where its own policy says."""
    sites = two("e0 e1 e2 e3", "- e0 e1 w0 e2 e3")
    own = OffsetMap({WHERE: sites.links["e"].map})
    for log_start, expected in ((0, 0), (3, 3), (4, 5)):
        found = GroupMap(own, ((BACK, OffsetMap()),), frozenset(), {WHERE: Examined(log_start)})
        assert found.to_target(*WHERE, 3) == expected


def test_the_end_is_not_passed_by_a_record_that_landed_unacknowledged() -> None:
    """The reverse link has read past it; this link does not know yet that it is there."""
    sites = Sites()
    for at in "ew":
        sites.links[at].fence()
    sites.logs["e"] += ["e1"]
    sites.settle()
    sites.logs["e"] += ["e2"]
    sites.links["e"].move(1)
    sites.links["w"].move(1)
    sites.look("e")
    sites.consume("e", 2)
    sites.carry("e")
    assert sites.logs["w"][sites.committed["w"]] == "e2"


def test_what_one_site_lost_track_of_is_declined() -> None:
    sites = two("e0 e1", "e0 e1")
    doubted = GroupMap(sites.group_map("e").own, (), frozenset({WHERE}))
    assert doubted.to_target(*WHERE, 1) is None


def test_what_stays_at_the_target_is_passed_also_where_no_link_brought_anything_behind_it() -> None:
    """A link back that has fenced and brought nothing yet: its groups, and its switchover, ended with a TypeError."""
    own, back = PartitionMap(), PartitionMap()
    own.advance([], End(0, 28))
    back.advance([], End(20, 21))
    found = GroupMap(
        OffsetMap({WHERE: own}), ((BACK, OffsetMap({WHERE: back})),), left_at_target={WHERE: (range(20, 27),)}
    )
    assert found.unexplained() == {WHERE: (27, 20)}


@pytest.mark.parametrize("between", ["marker", "abort"])
def test_a_group_comes_back_to_where_it_read_to_by_a_link_that_has_brought_nothing_since_it_began(between: str) -> None:
    """The link's own end stays before all that was written and mirrored away since."""
    sites = Sites()
    for at in "ew":
        sites.links[at].fence()
    for verb in ("write", between, "write"):
        sites.apply(verb, "e", 2)
    sites.settle()
    sites.consume("w", 4)
    assert sites.read == {"e1", "e2", sites.logs["e"][-2]}
    sites.carry("w")
    assert sites.committed["e"] == len(sites.logs["e"]) - 1
