"""A site's failback whose machine dies behind any entry of its journals, and is taken up by whichever command."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from broker.client.connection import Connection
from deploy.cli.root import cli
from deploy.cli.terminal import ExitCode
from failover.journal.log import OperationJournal
from failover.journal.values import JournalEntry
from tests.deploy.cli.test_failover import DEADLINE_S, Shell
from tests.deploy.cli.test_two_pairs import (
    BACK,
    THERE,
    findings,
    lose_east,
    produce,
    read_on,
    reads_next,
    records_at,
    role,
    two_pairs,
    until_equal,
)
from tests.deploy.test_runbook import is_allowed
from tests.failover.machines import Died, is_death, quick
from tests.interop.servers import wait_until

LINE = "failback --from east --to west"
ENTRIES_OF_A_LINK = 28
"""That a failback and its switchover write, about, where nothing cuts them short."""


@dataclass
class Machine:
    """Each command of this process runs on it. It is dead from when the entry was written whose turn it is."""

    dies_at: int = 0
    entries: int = 0
    is_dead: bool = field(default=False)

    def run(self, config: Path, line: str, dies_at: int = 0) -> Result | None:
        """None: it died. `dies_at`: behind so many entries; 0: it lives."""
        self.dies_at, self.entries, self.is_dead = dies_at, 0, False
        try:
            result = CliRunner().invoke(cli, ["--config", str(config), *line.split()])
        except BaseException as error:  # a death is no Exception, so that nothing in between handles it
            if not is_death(error):
                raise
            return None
        finally:
            died, self.is_dead = self.is_dead, False
        if died:
            return None
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result


@contextmanager
def dying(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    machine, send, record_all = Machine(), Connection.send, OperationJournal.record_all

    async def send_alive(self: Connection, *asked: Any, **more: Any) -> Any:
        if machine.is_dead:
            raise Died
        return await send(self, *asked, **more)

    async def record(self: OperationJournal, noted: Iterable[Any]) -> list[JournalEntry]:
        written = await record_all(self, list(noted))
        machine.entries += len(written)
        if 0 < machine.dies_at <= machine.entries:
            machine.is_dead = True
            raise Died
        return written

    with monkeypatch.context() as patched:
        patched.setattr(Connection, "send", send_alive)
        patched.setattr(OperationJournal, "record_all", record)
        yield machine


def open_operations(machine: Machine, config: Path) -> list[str]:
    listed = machine.run(config, "operation list --open -o json")
    assert listed is not None
    return [one["operation_id"] for one in json.loads(listed.stdout)["items"] if one["operation"] == "failback"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_killed_again_and_again_and_taken_up_on_two_machines_it_ends_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = random.Random(seed)
    quick(monkeypatch)
    with two_pairs(tmp_path) as shell, dying(monkeypatch) as machine:
        expected, at_west = lose_and_go_on(shell)
        (other := tmp_path / "another").mkdir()
        text = (tmp_path / "farshore.toml").read_text()
        (other / "farshore.toml").write_text(text.replace('"state"', f'"{other / "state"}"'))
        deaths_left = 6
        wait_until(lambda: is_allowed(shell, f"{LINE} --dry-run"), DEADLINE_S, "nothing to speak against it")
        while True:
            config = chance.choice([tmp_path, other]) / "farshore.toml"
            left = open_operations(machine, config)
            assert len(left) <= 1, "of two sites one is under way at a time"
            line = f"operation resume {left[0]}" if left and chance.random() < 0.5 else LINE
            dies_at = chance.randint(1, ENTRIES_OF_A_LINK) if deaths_left else 0
            result = machine.run(config, f"{line} --yes -o json", dies_at)
            deaths_left -= dies_at > 0
            if result is None or (result.exit_code == ExitCode.REFUSED and "is not run by any worker" in result.stderr):
                continue  # a machine before it fenced the link just now, and its worker comes back
            told = json.loads(result.stdout)
            if line != LINE:
                assert result.exit_code == ExitCode.DONE, result.output
                commands = [step["command"] for step in told["next"]]
                assert (f"farshore {LINE}" in commands) == (told["link"] == THERE[0]), (
                    "the first had the other behind it"
                )
                continue
            if result.exit_code == ExitCode.REFUSED:  # all was back before
                assert {one["outcome"] for one in told["links"]} == {"not_away"}, result.output
            else:
                assert {one["outcome"] for one in told["links"]} <= {"back", "not_away"}, result.output
            break
        check_is_back(shell, expected, at_west)
        assert open_operations(machine, config) == []


def lose_and_go_on(shell: Shell) -> tuple[dict[tuple[str, str], str], dict[str, Counter[str]]]:
    """-> what each group reads next at west, and what stands there."""
    produce(shell.east, "first", 9)
    read_on(shell.east, 2)
    shell.begin("mirror run " + " ".join(f"--link {link}" for link in THERE))
    until_equal(shell)
    lose_east(shell)
    shell.begin("mirror run " + " ".join(f"--link {link}" for link in (*THERE, *BACK)))
    return read_on(shell.west, 2), records_at(shell.west)


def check_is_back(shell: Shell, expected: dict[tuple[str, str], str], at_west: dict[str, Counter[str]]) -> None:
    assert role(shell, "east") == ("active", [])
    assert role(shell, "west") == ("standby", ["flights", "orders-.*"])
    wait_until(lambda: not findings(shell), 30, "nothing to be found any more")
    assert reads_next(shell.east) == expected
    assert records_at(shell.west) == at_west
    stranded = Counter(f"stranded {number}" for number in range(3))
    assert records_at(shell.east) == {topic: records + stranded for topic, records in at_west.items()}
    produce(shell.east, "at home", 2)
    at_home = Counter(f"at home {number}" for number in range(2))
    there = {topic: records + at_home for topic, records in at_west.items()}
    wait_until(lambda: records_at(shell.west) == there, DEADLINE_S, "what east wrote since, and no stranded record")
