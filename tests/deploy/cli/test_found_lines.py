"""What `operation show` says that an operation found: of each kind that there is."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from broker.base.documents import to_document
from deploy.cli.found_lines import found_in
from deploy.cli.late_lines import stranded_line, unwatched_line
from deploy.cli.next_steps import next_steps
from failover.losses.stranded import StrandedRange
from failover.planning.left import LeftPartition
from failover.planning.unplanned import UnplannedReadAgain, UnplannedSkip
from failover.running.late_commits import LateCommit, SourceReader
from failover.running.result import OperationResult
from failover.running.steps import Operation
from tests.deploy.cli.test_next_steps import BACK, LINK, MOVED

FOUND = {
    "hook_error": ("the after_hook ended with exit code 7", "the after_hook ended with exit code 7; all else was done"),
    "stranded": ((StrandedRange("flights", 0, 50, 53, 3),), "`farshore stranded list --link there`"),
    "is_unwatched": (True, "east did not tell"),
    "is_source_open": (True, "east answered, here or a link's worker, and was not known to refuse writes"),
    "open_topics": (("trips", "tours"), "no ACL of east is about trips, tours, so that everybody may write there"),
    "closing_addresses": (("east:1", "east:2"), "something took connections at east:1, east:2 and closed them"),
    "late_commits": ((LateCommit("second", "flights", 1, None, 7),), "after they were moved: second on flights-1"),
    "source_readers": ((SourceReader("second", 2), SourceReader("third", None)), "second, third"),
    "left_partitions": ((LeftPartition("flights", 0, "flights", "dead", (), True),), "left as they are: flights-0"),
    "unanswered_groups": (("second",), "left as they are: second"),
    "is_loss_unconsented": (True, "that the plan had excluded"),
    "unplanned_read_again": ((UnplannedReadAgain("second", "flights", 0, 3),), "did not say: second on flights-0"),
    "unplanned_skips": ((UnplannedSkip("second", "flights", 0, 3),), "than the plan said: second on flights-0"),
}


@pytest.mark.parametrize("field", [field.name for field in fields(OperationResult)])
def test_what_makes_a_result_one_with_findings_is_named_and_nothing_else_is(field: str) -> None:
    value, words = FOUND.get(field, (getattr(MOVED, field) or True, ""))
    result = replace(MOVED, **{field: value})
    lines = list(found_in(to_document(result)))
    assert result.has_findings == bool(lines) == (field in FOUND)
    assert words in " ".join(lines)


def test_of_what_nobody_is_shown_it_is_not_said_that_it_is_only_there() -> None:
    unshown = StrandedRange("flights", 0, 53, 54, None, is_shown=False)
    (line,) = found_in(to_document(replace(MOVED, stranded=(unshown,))))
    assert line == (
        "nobody was shown what came to east after the fence: `farshore stranded list --link there` says what it is"
    )
    both = to_document(replace(MOVED, stranded=(StrandedRange("flights", 0, 50, 53, 3), unshown)))
    assert "are only there" in next(iter(found_in(both)))


def test_of_what_could_not_be_counted_it_is_not_said_that_it_is_only_there() -> None:
    """It was "at least 0 records came to east after the fence, and are only there", of what west had brought there."""
    uncounted = replace(MOVED, stranded=(StrandedRange("flights", 0, 50, 53, None),))
    assert stranded_line(uncounted) == (
        "of what is in flights-0 [50, 53) that came to east after the fence it could not be counted whether any is "
        "only there"
    )
    (line,) = found_in(to_document(uncounted))
    assert line.startswith("it could not be counted whether any of what came to east after the fence is only there: ")
    steps = [step.what for step in next_steps(uncounted, LINK, (BACK,), {})]
    assert any("read to its end" in step for step in steps)
    some = replace(MOVED, stranded=(*uncounted.stranded, StrandedRange("trips", 0, 1, 2, 1)))
    assert "are only there" in next(iter(found_in(to_document(some))))


def test_of_a_source_that_does_not_tell_how_far_its_logs_go_no_more_is_said() -> None:
    untold = replace(MOVED, stranded=(StrandedRange("flights", 0, 50, 50, None, is_shown=False, is_end_told=False),))
    assert untold.has_findings
    assert stranded_line(untold) == (
        "east does not say how far its logs of flights-0 go behind what everybody is shown: whether there is more is "
        "not known"
    )
    assert next_steps(untold, LINK, (BACK,), {})[1].what.startswith("have east tell how far its logs go")
    (line,) = found_in(to_document(untold))
    assert line == (
        "east did not say how far its logs went after the fence: `farshore stranded list --link there` asks again"
    )


def test_of_a_failover_only_who_reads_on_is_unknown_where_its_source_did_not_tell_all() -> None:
    """Its loss states what came there; that was said not to be known."""
    unwatched = replace(MOVED, operation=Operation.FAILOVER, is_unwatched=True)
    said = "east did not tell of every group whether it read on there after the fence"
    assert list(found_in(to_document(unwatched))) == [said]
    assert unwatched_line(unwatched) == f"{said}: that is not known"
    commands = [one.command for one in next_steps(unwatched, LINK, (BACK,), {})]
    assert commands.count("farshore stranded list --link there") == 1


def test_a_result_of_a_version_that_knew_fewer_findings_has_none_of_them() -> None:
    assert list(found_in({"link": "there", "verified": True})) == []


def test_a_source_of_which_topics_alone_stay_open_is_not_told_as_open_as_well() -> None:
    """One cause was told as two findings, of which one said that the whole of the source takes writes."""
    open_source = {"link": "there", "source": "east", "is_source_open": True}
    (line,) = found_in({**open_source, "open_topics": ["trips"]})
    assert line.startswith("no ACL of east is about trips")
    assert list(found_in({**open_source, "open_topics": []})) == list(found_in(open_source)) != []
