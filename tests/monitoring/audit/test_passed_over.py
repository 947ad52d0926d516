"""What a link passes over before its first record: it brings it not, and nothing of it has gone."""

from __future__ import annotations

from monitoring.audit.model import Segment, Side, Span, Step
from monitoring.audit.ranges import comparable
from monitoring.audit.reasons import Reason
from tests.monitoring.audit.test_ranges import frozen, reasons


def test_what_the_link_passes_over_at_first_is_not_said_to_have_expired_at_the_target() -> None:
    """Behind the way of an older disk the source begins with what a link back brought there from the target."""
    steps = (Step(0, 60), Step(40, 60))
    began_so = frozen(target=Span(0, 120), steps=steps, mirrored_end=(100, 120), shared_target=True)
    partition, left_out = comparable(began_so)
    assert partition is not None
    assert partition.segments == (Segment(60, 40, 60),)
    assert reasons(left_out) == {
        (Side.SOURCE, Reason.WRITTEN_BY_OTHERS): Span(0, 40),
        (Side.TARGET, Reason.BEFORE_THE_MIRROR): Span(0, 60),
    }
