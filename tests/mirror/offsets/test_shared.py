"""Groups of two sites that write the same topics: wherever a group goes, it leaves out no record it has not read."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.client.site import Site
from mirror.link import Link
from mirror.offsets.intervals import End, Piece, intervals_for
from mirror.offsets.offset_map import OffsetMap, PartitionMap
from mirror.offsets.shared import GroupMap

EAST, WEST = Site("east", "east:9092"), Site("west", "west:9092")
THERE = Link("east-west", EAST, WEST, ("flights",), shared_targets=True)
BACK = Link("west-east", WEST, EAST, ("flights",), shared_targets=True)
WHERE = ("flights", 0)


def mirror_map(source: list[str], target: list[str], origin: str) -> OffsetMap:
    """The map of a link that brought the records of `origin` from one log to the other, as far as they are there."""
    landed = [(at, target.index(name)) for at, name in enumerate(source) if name[0] == origin and name in target]
    found, end = PartitionMap(), End(0, -1)
    for source_offset, target_offset in landed:
        intervals = intervals_for(end, [Piece(source_offset, 0)], target_offset)
        end = End(source_offset + 1, target_offset + 1)
        found.advance(intervals, end)
    if not found.intervals:  # a link that has run has a start, if nothing else
        found.advance(intervals_for(End(0, -1), [Piece(0, 0)], 0), End(0, 0))
    return OffsetMap({WHERE: found})


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[str], list[str]]:
    """Two logs that local producers and two links wrote, at any moment: what comes from elsewhere keeps its order."""
    east: list[str] = []
    west: list[str] = []
    for step in draw(
        st.lists(st.sampled_from(["write east", "write west", "mirror east", "mirror west"]), max_size=40)
    ):
        verb, site = step.split()
        origin, here, there = ("e", east, west) if site == "east" else ("w", west, east)
        if verb == "write":
            here.append(f"{origin}{len(here)}")
        else:
            there += [name for name in here if name[0] == origin and name not in there][:2]
    return east, west


@given(logs(), st.data())
def test_no_unread_record_is_left_out_and_nothing_drives_a_group_forward(
    both: tuple[list[str], list[str]], data: st.DataObject
) -> None:
    east, west = both
    there, back = mirror_map(east, west, "e"), mirror_map(west, east, "w")
    at_east = data.draw(st.integers(0, len(east)))
    at_west = GroupMap(there, ((BACK, back),)).to_target(*WHERE, at_east)
    if at_west is None:
        return
    assert set(west[:at_west]) <= set(east[:at_east])
    returned = GroupMap(back, ((THERE, there),)).to_target(*WHERE, at_west)
    assert returned is None or returned <= at_east


def test_a_group_goes_on_at_the_first_record_of_either_kind_that_it_has_not_read() -> None:
    east = ["e0", "e1", "w0", "e2", "e3", "w1"]
    west = ["w0", "e0", "e1", "w1", "e2", "e3"]
    there, back = mirror_map(east, west, "e"), mirror_map(west, east, "w")
    assert there.to_target(*WHERE, 3) == 4, "behind w1, which the group has not read"
    assert GroupMap(there, ((BACK, back),)).to_target(*WHERE, 3) == 3
    assert GroupMap(back, ((THERE, there),)).to_target(*WHERE, 3) == 3


def test_without_the_reverse_map_it_is_not_guessed() -> None:
    there = mirror_map(["e0", "e1"], ["e0", "e1"], "e")
    assert GroupMap(there, ((BACK, OffsetMap()),)).to_target(*WHERE, 1) is None
    assert GroupMap(there).to_target(*WHERE, 1) == 1
