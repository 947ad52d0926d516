"""The table of moments counts what came of each; seeds that follow each other do all that hands can do."""

from __future__ import annotations

import random

from broker.wire.records import Record
from tests.chaos_runs.clusters import PAIRS, RING
from tests.chaos_runs.hands_names import (
    NAMES_ACTIONS,
    TURNS,
    WAYS,
    Copies,
    Expected,
    differing,
    find_copies,
    some_time,
)
from tests.chaos_runs.hands_sites import TURNS as SITE_TURNS
from tests.chaos_runs.hands_topics import COPIES_OF_ACTION, PER_TOPIC, TopicsRun
from tests.chaos_runs.looking import content_of
from tests.chaos_runs.moments import WANTED_MOMENTS, HandsResult, Moment, Outcome, result_from, table
from tests.chaos_runs.runner import ALL_ACTIONS, form_of

CYCLE = range(10)


def test_the_table_counts_outcomes_by_action_and_kind() -> None:
    ours = [Moment("source-cut-end", "ours", Outcome.WENT_ON)] * WANTED_MOMENTS
    theirs = [Moment("source-cut-end", "3.9.1", Outcome.FAULT)]
    bad = HandsResult(2, "3.9.1-ours", ["source-cut-end"], moments=theirs, problems={"source-cut-end": ["lost"]})
    lines = table([HandsResult(1, "ours-ours", ["source-cut-end"], moments=ours), bad]).splitlines()
    assert lines[1].split() == ["source-cut-end", "3.9.1", "1", "0", "0", "0", "1", "(fewer", "than", "20)"]
    assert lines[2].split() == ["source-cut-end", "ours", "20", "0", "20", "0", "0"]
    assert lines[3].startswith("2 runs, 1 with problems; 21 moments, 1 faults")


def test_a_result_is_read_as_it_was_kept() -> None:
    result = HandsResult(3, "ours-ours", ["adopt"], moments=[Moment("adopt", "ours", Outcome.REFUSED)])
    assert result_from(result.to_json()) == result
    assert result.is_good


def test_ten_seeds_do_everything_and_forty_do_it_often_enough() -> None:
    forms = [form_of(seed, ()) for seed in CYCLE]
    assert sorted(action for _, actions in forms for action in actions) == sorted(ALL_ACTIONS)
    assert [form for form, actions in forms if actions == list(PER_TOPIC)] == [TopicsRun]
    per_cycle = min(COPIES_OF_ACTION, TURNS, SITE_TURNS)
    assert 40 // len(CYCLE) * per_cycle >= WANTED_MOMENTS
    assert {PAIRS[pair][0] for pair in RING} == {PAIRS[pair][1] for pair in RING} == {"ours", "3.9.1", "4.3.0"}


def test_only_the_named_actions_are_done() -> None:
    assert form_of(4, ["link-rename"])[1] == ["link-rename"]
    assert {form_of(seed, ["source-disk", "target-delete"])[1][0] for seed in CYCLE} == {"source-disk", "target-delete"}
    assert "adopt" in WAYS
    assert "link-rename" in NAMES_ACTIONS


def test_what_can_be_adopted_is_known_by_content() -> None:
    source = [content_of(Record(0, 1, b"k", b"%d" % number, ())) for number in range(6)]
    assert find_copies(source[1:4], source, 0) == Copies([(0, 1)], is_clear=True)
    assert find_copies([*source[:3], *source[:4]], source, 0) == Copies([], is_clear=True)
    assert find_copies([source[1], source[3]], source, 0) == Copies([], is_clear=True)
    assert find_copies(source[:5], source[2:], 2) == Copies([(2, 0)], is_clear=True)
    assert find_copies(source[:5], source[2:], 1) == Copies([], is_clear=True), "more than retention can have taken"
    assert find_copies([source[3], *source[2:5]], source[2:], 2) == Copies([(1, 0)], is_clear=False)


def test_a_time_to_start_at_names_the_first_record_of_that_time() -> None:
    records = [Record(at, 1_700_000_000_000 + 10 * (at // 2), b"k", b"v%d" % at, ()) for at in range(10, 20)]
    for seed in range(20):
        at, moment = some_time(random.Random(seed), records)
        assert at % 2 == 0
        assert moment == f"2023-11-14T22:13:20.{10 * (at // 2):03}+00:00"


def test_a_target_that_is_not_as_expected_is_described() -> None:
    contents = [content_of(Record(0, 1, b"k", b"%d" % number, ())) for number in range(4)]
    wanted = Expected("adopt", (contents[0],), 5, 0)
    assert "differs at record 1" in differing(wanted, contents[1:], [contents[0], contents[2]])
    assert "differs at its end, at 3" in differing(wanted, contents[1:], contents[:3])
