"""A failback's machine that stood still while another one carried it on: what its operator is told when it wakes."""

from __future__ import annotations

import signal

from deploy.cli.terminal import ExitCode
from tests.deploy.cli.test_failback import command, wait_for_worker
from tests.deploy.cli.test_failback_operation import operators, waiting, words
from tests.deploy.cli.test_stranded import Operator

__all__ = ["operators"]


def test_who_wakes_is_told_who_went_on_and_not_that_it_was_cut_short(
    operators: tuple[Operator, Operator],
) -> None:
    """It said that the failback was cut short, and to go on with it, when another machine had long ended it."""
    operator, other = operators
    with waiting(operators) as (operation_id, process):
        process.send_signal(signal.SIGSTOP)
        with command(other, "mirror", "run", "--link", "west-east"):
            wait_for_worker(operator)
            other.run(f"operation resume {operation_id} --yes")
        process.send_signal(signal.SIGCONT)
        assert process.wait(60.0) == ExitCode.ERROR
    said = words((operator.folder / "failback.log").read_text())
    assert f"{operation_id} was taken up elsewhere by " in said
    assert "(verified by now)" in said
    assert "was cut short" not in said
