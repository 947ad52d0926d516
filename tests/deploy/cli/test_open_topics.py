"""Topics that a freeze by ACLs left open at the source: what a move says of them at its end. Pure."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deploy.cli.failover_tables import summary
from deploy.cli.next_steps import next_steps
from deploy.cli.site_tables import print_results
from deploy.cli.terminal import Output
from failover.losses.stranded import StrandedRange
from failover.planning.intent import Intent
from failover.running.result import OperationResult
from failover.running.steps import Operation
from tests.deploy.cli.test_next_steps import BACK, LINK, LOST, MOVED


@pytest.mark.parametrize("moved", [MOVED, replace(LOST, is_source_open=True)])
def test_topics_that_stay_open_are_named_with_who_may_write_to_them_and_what_closes_them(
    moved: OperationResult,
) -> None:
    """A topic of a link stayed open to its producers, and nothing said so but a line amid others."""
    by_acls = replace(LINK, source=replace(LINK.source, freeze_principals=("User:shop",)))
    denied = replace(moved, denied_principals=("User:shop",), takes_writes=True, moved_topics=("a.*",))
    found = replace(denied, open_topics=("a.trips",))
    assert found.has_findings
    stop, close, *_ = next_steps(found, by_acls, (BACK,), {})
    assert stop.what.startswith("if anything writes to a.trips at east, stop it: ")
    assert close.what.startswith("everybody may write to a.trips at east, for all that is known, since no ACL there is")
    assert close.command == r"farshore site standby --site east --topic 'a\.trips'"
    standing_by = [step for step in next_steps(found, by_acls, (BACK,), {}) if "site standby" in step.command]
    assert standing_by == [close], "the others are closed"
    assert summary(found) == (
        f"{summary(MOVED)}; a.trips stays open at east, to everybody for all that is known: what clients write there "
        "from now on is only there"
    )
    also = replace(found, stranded=(StrandedRange("flights", 0, 50, 53, 3),))
    assert next_steps(also, by_acls, (BACK,), {})[0].what.startswith("stop what writes at east: ")


def test_a_site_of_which_topics_stay_open_is_not_told_as_open_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    intent = Intent(Operation.FAILOVER, (LOST.link,), LOST.source, LOST.target, is_site=True)
    found = replace(LOST, is_source_open=True, open_topics=("a.trips",))
    print_results(intent, [found], [], (), Output.TABLE)
    told = capsys.readouterr().out
    assert "topics open" in told
    assert "source open" not in told
