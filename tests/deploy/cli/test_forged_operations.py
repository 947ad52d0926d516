"""The commands beside a journal that somebody forged: it is listed as damaged, and nothing else is kept from moving."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.client.cluster import Cluster
from broker.client.log import append
from broker.client.site import Site
from broker.wire.records import Record, encode_batch
from deploy.cli.terminal import ExitCode
from failover.journal.log import claim
from failover.journal.topic import WHERE
from tests.deploy.cli.test_failover import Shell, two_sites
from tests.failover.journal.test_forged_journal import FORGED

STATES = {"no JSON in the middle": "damaged", "nested without end": "damaged", "a newer version's": "newer_version"}


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with two_sites(tmp_path) as shell:
        yield shell


async def write(bootstrap: str, name: str) -> None:
    async with Cluster(Site("west", bootstrap)) as west:
        await claim(west, ("north", "west"), lambda _: None)
        for key, value in FORGED[name]:
            await append(west, WHERE, encode_batch([Record(0, 1, key, value)]))


def test_it_is_listed_and_shown_and_a_switchover_passes_by_it(shell: Shell) -> None:
    """The list was an error that named nobody, or a traceback, and nothing could be moved any more."""
    for name, state in STATES.items():
        asyncio.run(write(shell.west.bootstrap, name))
        listed = json.loads(shell.run("operation list -o json", ExitCode.DONE).stdout)["items"]
        assert [(one["operation_id"], one["state"]) for one in listed] == [("bad", state)]
        shown = json.loads(shell.run("operation show bad -o json", ExitCode.DONE).stdout)
        assert shown["state"] == state
        shell.run("operation show bad", ExitCode.DONE)
        refused = shell.run("operation resume bad --yes", ExitCode.ERROR).stderr
        assert "bad" in refused
        assert "Traceback" not in refused
    result = json.loads(shell.run("switchover --yes -o json", ExitCode.DONE).stdout)
    assert result["verified"]
