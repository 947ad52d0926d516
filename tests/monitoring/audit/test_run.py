"""What an audit does by what it was asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.client.site import Site
from mirror.api import Link
from monitoring.audit.run import AuditRequest, command_of

LINK = Link("east-west", Site("east", "east:9092"), Site("west", "west:9092"), ("*",))


@pytest.mark.parametrize(
    ("master", "asked", "tried"),
    [
        ("local[*]", None, True),
        ("local", False, False),
        ("spark://master:7077", None, False),
        ("yarn", None, False),
        ("spark://master:7077", True, True),
    ],
)
def test_batches_stay_closed_where_sparks_workers_have_our_code_or_somebody_says_so(
    master: str, asked: bool | None, tried: bool
) -> None:
    request = AuditRequest(LINK, master, (), Path("audit"), may_stay_closed=asked)
    assert request.tries_batches is tried


@pytest.mark.parametrize(
    ("asked", "said"), [(None, ""), (True, " --batches"), (False, " --no-batches")], ids=["", "batches", "no batches"]
)
def test_the_command_that_repeats_a_run_opens_batches_as_the_run_did(asked: bool | None, said: str) -> None:
    request = AuditRequest(LINK, "local", (), Path("audit"), may_stay_closed=asked)
    assert command_of(request, "run") == f"farshore audit run --link east-west --full --master 'local'{said}"
