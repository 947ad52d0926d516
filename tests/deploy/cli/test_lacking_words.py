"""No line says that nothing is missing where the target lacks records of its own."""

from __future__ import annotations

from deploy.cli.loss_lines import behind_line
from deploy.cli.stranded import in_words
from failover.failback.stranding import Stranded
from failover.losses.statements import Certainty, LossTotal
from mirror.worker.parted import PartingKind, SourceParting

LACKS = (SourceParting("flights", 0, PartingKind.CUT, 37, 42, "it ends there"),)


def test_a_list_of_stranded_records_names_what_the_target_had_before() -> None:
    """It said `west has no record that east lacks`."""
    found = Stranded("west-east", "west", "east", 0, (), target_lacks=LACKS)
    said = in_words(found)
    assert "has no record that" not in said
    assert "flights-0: east has lost what was mirrored from its offsets 37 to 41" in said


def test_a_switchover_that_is_refused_for_it_does_not_say_that_nothing_is_lost() -> None:
    total = LossTotal(0, 0, 0, Certainty.EXACT)
    assert "nothing is lost" in behind_line(total, "west", "east", is_promoted=False)
    said = behind_line(total, "west", "east", is_promoted=False, lacks=1)
    assert "nothing is lost" not in said
    assert "east lacks what it had before" in said
