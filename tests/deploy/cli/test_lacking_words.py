"""No line says that nothing is missing where the target lacks records of its own."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from broker.base.documents import to_document
from broker.client.site import Site
from deploy.cli.failback_words import lacks_line
from deploy.cli.failover_tables import show_result
from deploy.cli.loss_lines import behind_line
from deploy.cli.site_tables import print_results
from deploy.cli.stranded import in_words, parting_lines
from deploy.cli.terminal import Output
from failover.failback.stranding import Stranded
from failover.losses.lacked_of import with_lacked
from failover.losses.statements import Certainty, LossTotal, PartitionLoss
from failover.observing.snapshot import Lacked
from failover.planning.intent import Intent
from failover.planning.staying import Stay, StayKind, StayReason
from failover.running.result import OperationResult
from failover.running.steps import Operation
from mirror.link import Link
from mirror.split_findings import of_source_lacks
from mirror.worker.parted import PartingKind, SourceParting

LACKS = (SourceParting("flights", 0, PartingKind.CUT, 37, 42, "it ends there"),)
ENDED = OperationResult(
    *("o-1", Operation.FAILOVER, "west-east", "west", "east", True, 1.0, (), (), ()),
    LossTotal(0, 0, 0, Certainty.EXACT),
)
UNREAD = SourceParting("flights", 1, PartingKind.NOT_COMPARED, 0, 0, "no answer")


def test_a_list_of_stranded_records_names_what_the_target_had_before() -> None:
    """It said `west has no record that east lacks`."""
    found = Stranded("west-east", "west", "east", 0, (), target_lacks=LACKS)
    said = in_words(found)
    assert "has no record that" not in said
    assert "flights-0: east has lost what was mirrored from its offsets 37 to 41" in said


def test_of_what_could_not_be_compared_nothing_is_said_to_be_missing() -> None:
    """A plan said `no link brings what east had before: ... whether east still has what was mirrored is not known`."""
    unread = lacks_line((UNREAD,), "east")
    assert unread == (
        "east may have lost records of its own that were mirrored from it before, and no link would bring them back; "
        "whether it has is not known of flights-1 (no answer)"
    )
    known = lacks_line((*LACKS, UNREAD), "east")
    assert known.startswith("no link brings what east had before: flights-0: ")
    assert known.endswith(f"it ends there. {unread}")
    two = lacks_line((UNREAD, replace(UNREAD, partition=2, detail="it has no leader at west")), "east")
    assert two.endswith("is not known of flights-1 (no answer), flights-2 (it has no leader at west)")
    found = Stranded("west-east", "west", "east", 0, (), target_lacks=(UNREAD,))
    assert in_words(found) == unread
    assert in_words(replace(found, target_lacks=(*LACKS, UNREAD))) == known


def test_a_row_of_a_loss_says_what_of_it_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    """Beside 0 offsets stood `unknown` alone."""
    at_least = PartitionLoss("flights", 1, Certainty.AT_LEAST, 0, None, 50, 50, seen_at_ms=1)
    losses = with_lacked([at_least], [Lacked("flights", 1, None, 0, None)])
    assert [loss.certainty for loss in losses] == [Certainty.UNKNOWN]
    show_result(replace(ENDED, losses=losses))
    rows = [line for line in capsys.readouterr().out.splitlines() if "flights-1" in line]
    assert [row.split()[:5] for row in rows] == [["flights-1", "at_least", "0", "-", "unknown"]]


def test_where_neither_side_could_be_compared_both_are_told() -> None:
    """What the target lacks was left out where it was not known what the source has."""
    other = replace(UNREAD, partition=2)
    said = in_words(Stranded("west-east", "west", "east", None, (), partings=(other,), target_lacks=LACKS))
    assert said.startswith("what west alone has is not known: flights-2: ")
    assert said.endswith(lacks_line(LACKS, "east"))


def test_a_list_says_what_the_target_alone_has_as_status_does() -> None:
    """Of a partition that is there, and cut, it said nothing."""
    (said,) = parting_lines(Stranded("east-west", "east", "west", 0, (), partings=LACKS))
    (finding,) = of_source_lacks(Link("east-west", Site("east", "e:1"), Site("west", "w:1"), ("flights",)), LACKS)
    assert said.replace("flights-0: ", "") == finding.detail


def test_a_switchover_that_is_refused_for_it_does_not_say_that_nothing_is_lost() -> None:
    total = LossTotal(0, 0, 0, Certainty.EXACT, is_source_there=True)
    assert "nothing is lost" in behind_line(total, "west", "east", is_promoted=False)
    said = behind_line(total, "west", "east", is_promoted=False, lacks=1)
    assert "nothing is lost" not in said
    assert "east lacks what it had before" in said


def test_the_result_of_a_site_has_what_its_plan_says(capsys: pytest.CaptureFixture[str]) -> None:
    """Of a link that could not be asked, and of what the target lacks, nothing was said at the end."""
    ended = ENDED
    intent = Intent(Operation.FAILOVER, ("west-east",), "west", "east", is_site=True, refused_links=("orders",))
    stays = to_document([Stay(StayKind.LINK, "orders", StayReason.NOT_KNOWN, "damaged")])
    told = (intent, [replace(ended, lacks=LACKS)], stays, ())
    print_results(*told, Output.JSON)
    document = json.loads(capsys.readouterr().out)
    assert (document["loss"]["certainty"], document["loss"]["unasked_links"]) == ("at_least", 1)
    assert document["summary"].endswith("of 1 link nothing could be asked")
    print_results(*told, Output.TABLE)
    shown = " ".join(capsys.readouterr().err.split())
    assert "of 1 link nothing could be asked" in shown
    assert lacks_line(LACKS, "east") in shown
