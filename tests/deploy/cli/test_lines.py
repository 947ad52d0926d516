"""Sentences fit a terminal; what is copied from them stays whole, on a line of its own where it has one."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from deploy.cli.failover_tables import show_plan, tell_next
from deploy.cli.lines import WIDTH, filled, filled_for_people, with_command
from deploy.cli.next_steps import next_steps
from deploy.cli.terminal import CommandRefused
from failover.observing.contact import BrokerAnswer, SiteFinding
from failover.planning.moves import MoveKind
from failover.planning.plan import plan_failover
from tests.deploy.cli.test_next_steps import BACK, LINK, LOST
from tests.failover.planning.test_unknown_moves import SNAPSHOT, UNKNOWN

RESUME = "farshore operation resume switchover-east-west-20261126T114100430888"
LONG = f"when west answers for it and what stopped it is seen to, from any machine: `{RESUME}` goes on, or so"


def test_a_command_in_a_sentence_is_never_broken() -> None:
    for text in (LONG, LONG.replace("`", "")):
        lines = filled(text).split("\n")
        assert max(map(len, lines)) <= WIDTH
        assert [line for line in lines if RESUME in line]
        assert " ".join(line.strip() for line in lines) == text
    wide = f"--topic {'x' * WIDTH}"
    assert f"farshore site standby --site east {wide}" in filled(
        f"hint: farshore site standby --site east {wide}; then"
    )


def test_a_command_that_is_next_has_a_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert with_command("next: stop what writes there", "") == "next: stop what writes there"
    steps = next_steps(replace(LOST, takes_writes=True, moved_topics=("flights",)), LINK, (BACK,), {})
    tell_next(steps)
    lines = capsys.readouterr().out.splitlines()
    assert [line.strip() for line in lines if line.startswith("  farshore ")] == [
        one.command for one in steps if one.command
    ]
    assert max(map(len, lines)) <= WIDTH


def test_a_refusal_is_one_line_for_programs_and_fits_for_people(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = CommandRefused(LONG, f"{LONG}\n[[links]]\nname = {'x' * WIDTH!r}")
    refusal.show()
    assert capsys.readouterr().err.startswith(f"error: {LONG}\nhint: {LONG}\n[[links]]\n")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    refusal.show()
    said = capsys.readouterr().err
    assert said.endswith(f"\n[[links]]\nname = {'x' * WIDTH!r}\n"), "what is added to a file stays as it is"
    assert max(map(len, said.split("[[links]]")[0].splitlines())) <= WIDTH
    assert filled_for_people("short") == "short"


def test_each_line_of_a_plan_of_a_dead_source_fits(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    error = "127.0.0.1:39192 cannot be reached: [Errno 111] Connect call failed ('127.0.0.1', 39192)"
    kept = replace(UNKNOWN, source_offset=None, target_offset=43)
    gone = replace(
        SNAPSHOT,
        source_finding=SiteFinding.DEAD,
        evidence=(BrokerAnswer("127.0.0.1:39192", 1_700_000_000_000, 3.1, error),),
        partitions=(replace(SNAPSHOT.partitions[0], source_end=None),),
        groups=tuple(replace(SNAPSHOT.groups[0], group=f"analysts-{n}", partitions=(kept,)) for n in range(9)),
    )
    plan = plan_failover(gone, allow_data_loss=True, even_if_source_answers=False)
    assert {move.kind for move in plan.moves} == {MoveKind.KEPT}
    show_plan(plan)
    said = capsys.readouterr().err
    assert max(map(len, said.splitlines())) <= WIDTH
    assert said.count("127.0.0.1:39192") == 1
