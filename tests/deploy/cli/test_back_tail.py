"""What only the other site has of an earlier failover, met amid a failback: the commands that are named work there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from deploy.cli.terminal import ExitCode
from failover.failback.operation import first_entry
from failover.journal.log import OperationJournal, claim
from failover.journal.values import Event
from failover.planning.intent import Intent
from failover.running.steps import Operation
from tests.deploy.cli.test_failback import lose_both_in_turn
from tests.deploy.cli.test_stranded import Operator
from tests.interop.servers import FarshoreBroker

ID = "failback-east-west-1"


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    """A failback was begun, and is carried on by nobody; then a tail of the link back is found."""
    with FarshoreBroker(tmp_path / "east") as east, FarshoreBroker(tmp_path / "west") as west:
        operator = Operator(tmp_path, east.bootstrap, west.bootstrap)
        asyncio.run(lose_both_in_turn(operator))
        asyncio.run(begin_and_die(operator))
        yield operator


async def begin_and_die(operator: Operator) -> None:
    between = ("east", "west")
    intent = Intent(Operation.FAILBACK, ("east-west",), *between)
    async with Cluster(operator.link.target) as west:
        writer, _ = await claim(west, between, lambda _: None)
        journal = OperationJournal(west, ID, "a victim", writer, between)
        async with journal.kept((Event.PLANNED, first_entry(intent.document(), "a victim", "west-east", {}))):
            await journal.record(Event.CUT_SHORT, {"step": "", "error": "a test"})


def test_a_tail_that_is_met_amid_a_failback_is_left_or_appended_by_what_is_said(operator: Operator) -> None:
    """It was said to append it by `link resume`, which is refused while the failback has not ended."""
    append = "link resume --link west-east --stranded append"
    for option in ("--dry-run", "--yes"):
        refused = operator.run(f"failback --link east-west {option}", ExitCode.REFUSED)
        said = " ".join(refused.stderr.split())
        assert "stays where it is: farshore stranded leave --link west-east;" in said
        assert f"behind newer records: farshore operation abort {ID}, then farshore {append}" in said
    held = operator.run(f"{append} --yes", ExitCode.REFUSED)
    assert ID in held.stderr
    operator.run("stranded leave --link west-east --dry-run")
    operator.run(f"operation abort {ID} --yes")
    refused = operator.run("failback --link east-west --dry-run", ExitCode.REFUSED)
    assert f"behind newer records: farshore {append}" in " ".join(refused.stderr.split())
    operator.run(f"{append} --yes")
