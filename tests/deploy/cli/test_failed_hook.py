"""What is left to do where everything was done but what the after_hook was to do."""

from __future__ import annotations

from dataclasses import replace

from deploy.cli.next_steps import next_steps
from tests.deploy.cli.test_next_steps import BACK, LINK, MOVED


def test_what_a_failed_hook_was_to_do_is_done_by_hand() -> None:
    """Its clients were told to start, and nobody that the load balancer still sent them elsewhere."""
    told = next_steps(replace(MOVED, hook_error="the after_hook ended with exit code 7"), LINK, (BACK,), {})
    assert "do by hand what the after_hook was to do, or run it again" in told[0].what
    assert not any("after_hook" in step.what for step in next_steps(MOVED, LINK, (BACK,), {}))
