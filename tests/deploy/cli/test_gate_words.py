"""What gates say, and what they say is to be done."""

from __future__ import annotations

import re

import pytest

from deploy.cli.gate_words import of_a_step, reason_of, refusal_of, refused_by
from failover.observing.contact import SiteFinding
from failover.observing.snapshot import Snapshot
from failover.planning.gates import GateRefusal, RefusalReason, refusal_for
from failover.planning.plan import OperationPlan
from failover.running.steps import Operation

SNAPSHOT = Snapshot("west-east", "west", "east", 9, SiteFinding.ALIVE, "running", "", (), ())


def plan(reason: RefusalReason) -> OperationPlan:
    return OperationPlan(Operation.SWITCHOVER, SNAPSHOT, (), (), (), (GateRefusal(reason, "g2"),))


def test_the_refused_step_of_a_failback_names_no_option_that_a_failback_has_not() -> None:
    """It named --leave-group, and that was a usage error."""
    for reason in (RefusalReason.GROUP_NOT_MOVABLE, RefusalReason.GROUP_UNANSWERED):
        refused = refusal_of(plan(reason))
        assert refused is not None
        assert "--leave-group" in str(refused.hint)
        assert "--leave" not in str(of_a_step(plan(reason), refused).hint)
    other = refusal_of(plan(RefusalReason.GROUP_ACTIVE_AT_SOURCE))
    assert other is not None
    hint = other.hint
    assert of_a_step(plan(RefusalReason.GROUP_ACTIVE_AT_SOURCE), other).hint == hint


def test_who_reads_is_told_by_the_site_where_he_does() -> None:
    """`The source` is another site for who typed a failback than for the switchover among its steps."""
    said = {
        RefusalReason.GROUP_ACTIVE_AT_SOURCE: "the group g2 still reads at west",
        RefusalReason.GROUP_ACTIVE_AT_TARGET: "the group g2 has consumers at east, so its offsets cannot be set",
        RefusalReason.MEMBERS_UNKNOWN_AT_SOURCE: "it cannot be told whether the group g2 still reads at west",
        RefusalReason.MEMBERS_UNKNOWN_AT_TARGET: "it cannot be told whether the group g2 has consumers at east",
    }
    for reason, text in said.items():
        refused = refusal_of(plan(reason))
        assert str(refused) == text
        assert refused is not None
        assert "--group GROUP" not in str(of_a_step(plan(reason), refused).hint)
        assert "with --group" not in str(of_a_step(plan(reason), refused).hint)


@pytest.mark.parametrize("reason", [RefusalReason.FROZEN_FOR_OTHERS, RefusalReason.CLOSED_AT_TARGET])
def test_a_site_is_opened_for_the_topics_alone_that_are_in_the_way(reason: RefusalReason) -> None:
    """It named a thaw of all of it, which let clients write to topics that another site takes, too."""
    told, hint = reason_of(refusal_for(reason, "west", ["orders-.*", "cars"]), "west", "east")
    assert "(orders-.*, cars)" in told
    thaws = re.findall(r"`farshore site thaw ([^`]*)`", hint)
    assert thaws == ["--site west --topic 'orders-.*' --topic cars"]


def test_of_several_links_every_group_that_may_be_left_is_named() -> None:
    """It named the first one alone, and the next try was refused for the other."""
    found = [GateRefusal(RefusalReason.GROUP_UNANSWERED, group, "no coordinator") for group in ("analysts", "b g")]
    refused = refused_by(found, "east", "west")
    assert str(refused.hint).endswith("as it is: --leave-group analysts --leave-group 'b g'")


def test_the_hint_of_a_consent_names_those_that_the_other_refusals_want() -> None:
    found = [
        GateRefusal(RefusalReason.SOURCE_ANSWERS, "east"),
        GateRefusal(RefusalReason.DATA_LOSS_NOT_ALLOWED, "east"),
        GateRefusal(RefusalReason.GROUP_NOT_MOVABLE, "b g"),
    ]
    more = str(refused_by(found, "east", "west").hint).partition("; ")[2]
    assert more == "a failover that goes on then wants --allow-data-loss --leave-group 'b g', too"
    assert ";" not in str(refused_by(found[:1], "east", "west").hint)


@pytest.mark.parametrize("reason", [RefusalReason.TARGET_LACKS, RefusalReason.TARGET_NOT_COMPARED])
def test_what_the_target_lacks_of_its_own_wants_the_consent_to_a_loss_too(reason: RefusalReason) -> None:
    """The hint named a failover that was refused for it at the next try."""
    lacking = GateRefusal(reason, "flights:0", "it had offsets [0, 5) before")
    for first in (RefusalReason.SOURCE_REPLACED, RefusalReason.SOURCE_ANSWERS):
        hint = str(refused_by([GateRefusal(first, "east"), lacking], "east", "west").hint)
        assert hint.endswith("; a failover that goes on then wants --allow-data-loss, too")
    lost = GateRefusal(RefusalReason.DATA_LOSS_NOT_ALLOWED, "east")
    assert "; a failover" not in str(refused_by([lost, lacking], "east", "west").hint), "it names that option itself"


def test_of_a_group_whose_name_is_right_and_that_reads_other_topics_no_other_name_is_asked_for() -> None:
    hint = str(refused_by([GateRefusal(RefusalReason.GROUP_NOT_FOUND, "g")], "east", "west").hint)
    assert "or leave it out: of one that reads only what these links do not carry" in hint


def test_the_way_on_from_a_topic_that_was_made_anew_names_each_of_its_partitions() -> None:
    """It said TOPIC:PARTITION."""
    found = [GateRefusal(RefusalReason.OFFSETS_IN_DOUBT, f"lap-times-{number}") for number in range(2)]
    found.append(GateRefusal(RefusalReason.GROUP_NOT_MOVABLE, "analysts"))
    assert "`farshore link resume --gap lap-times:0 --dry-run`" in reason_of(found[0], "east", "west")[1]
    hint = str(refused_by(found, "east", "west").hint)
    assert "`farshore link resume --gap lap-times:0 --gap lap-times:1 --dry-run`" in hint
