"""No line says that nothing is missing where the target lacks records of its own."""

from __future__ import annotations

from dataclasses import replace

from deploy.cli.loss_lines import behind_line
from deploy.cli.resuming import lacking
from deploy.cli.stranded import in_words
from failover.failback.stranding import Stranded
from failover.losses.statements import Certainty, LossTotal
from mirror.worker.parted import PartingKind, SourceParting

LACKS = (SourceParting("flights", 0, PartingKind.CUT, 37, 42, "it ends there"),)
UNREAD = SourceParting("flights", 1, PartingKind.NOT_COMPARED, 0, 0, "no answer")


def test_a_list_of_stranded_records_names_what_the_target_had_before() -> None:
    """It said `west has no record that east lacks`."""
    found = Stranded("west-east", "west", "east", 0, (), target_lacks=LACKS)
    said = in_words(found)
    assert "has no record that" not in said
    assert "flights-0: east has lost what was mirrored from its offsets 37 to 41" in said


def test_of_what_could_not_be_compared_nothing_is_said_to_be_missing() -> None:
    found = Stranded("west-east", "west", "east", 0, (), target_lacks=(UNREAD,))
    said = in_words(found)
    assert "no link brings" not in said
    assert said.startswith("whether east has all that it had before is not known: flights-1: ")
    assert "no link brings that" in in_words(replace(found, target_lacks=(*LACKS, UNREAD)))


def test_nor_is_it_where_a_link_is_let_run() -> None:
    assert lacking((UNREAD,), "east").startswith("whether east has all that it had before is not known, ")
    assert lacking((*LACKS, UNREAD), "east").startswith("the link does not bring what east had before: flights-0: ")


def test_a_switchover_that_is_refused_for_it_does_not_say_that_nothing_is_lost() -> None:
    total = LossTotal(0, 0, 0, Certainty.EXACT)
    assert "nothing is lost" in behind_line(total, "west", "east", is_promoted=False)
    said = behind_line(total, "west", "east", is_promoted=False, lacks=1)
    assert "nothing is lost" not in said
    assert "east lacks what it had before" in said
