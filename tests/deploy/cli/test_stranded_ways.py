"""Whether what a link would append is still what somebody said yes to, and what is said where that is not known."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.cli.link import _is_other
from deploy.cli.stranded_ways import TailsGoing
from deploy.cli.terminal import ExitCode
from mirror.api import StrandedTail
from tests.broker.faults import injected
from tests.deploy.cli.test_broker import ROOT
from tests.deploy.cli.test_stranded import CONFIG
from tests.failover.failback.stage import lost_and_back
from tests.failover.losses.test_unshown_stranded import ends_connections

TAIL = StrandedTail("flights", 0, "flights", 4, 6, 2, 0, 0, False, True, 5)
TOLD = TailsGoing(brings=(TAIL,))
MORE = replace(TAIL, end_offset=9, records=5)


@pytest.mark.parametrize(
    ("told", "now", "is_other"),
    [
        (TOLD, TOLD, False),
        (TOLD, TailsGoing(brings=()), False),
        (TOLD, TailsGoing(brings=(MORE,)), True),
        (TOLD, TailsGoing(brings=(replace(MORE, target_wrote=False),)), False),
        (TOLD, TailsGoing(brings=None), True),
        (TailsGoing(brings=None), TailsGoing(brings=None), False),
        (TailsGoing(brings=None), TOLD, False),
        (TOLD, TailsGoing(leaves=(TAIL,)), True),
    ],
)
def test_more_behind_newer_records_or_what_cannot_be_counted_any_more_is_other(
    told: TailsGoing, now: TailsGoing, is_other: bool
) -> None:
    assert _is_other(told, now) is is_other


async def test_where_a_source_does_not_say_how_far_its_logs_go_each_command_says_so_and_what_may_be_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`stranded list` ended with 0 beside it, and the link was let run by whoever left what is shown."""
    config = tmp_path / "farshore.toml"

    async def run(line: str, code: ExitCode) -> tuple[bytes, str]:
        typed = [sys.executable, "-m", "deploy.cli", "--config", str(config), *line.split()]
        process = await asyncio.create_subprocess_exec(*typed, cwd=ROOT, stdout=PIPE, stderr=PIPE)
        out, said = await process.communicate()
        assert process.returncode == code, said.decode()
        return out, " ".join(said.decode().split())

    async with lost_and_back(tmp_path, 1, (3, 0), (3, 0)) as lost:
        east, west = (site.bootstrap_servers for site in (lost.there.source, lost.there.target))
        names = CONFIG.format(east=east, west=west).replace("east-west", lost.there.name)
        config.write_text(names.replace("west-east", lost.back.name))
        with injected(monkeypatch, {lost.stage.brokers[0]: ends_connections()}):
            link = f"--link {lost.there.name}"
            listed = json.loads((await run(f"stranded list {link} -o json", ExitCode.FINDINGS))[0])
            assert (listed["records"], len(listed["untold_ends"]), listed["tails"][0]["records"]) == (None, 2, 3)
            for line in (f"link resume {link} --yes", f"link resume {link} --stranded leave --yes", f"failback {link}"):
                _, told = await run(line, ExitCode.REFUSED)
                assert "east does not say how far its logs of flights-0, flights-1 go" in told
                assert "have farshore reach them itself" in told
            assert "does not say" in (await run(f"stranded leave {link} --dry-run", ExitCode.DONE))[1]
            await run(f"link resume {link} --stranded append --yes", ExitCode.DONE)
