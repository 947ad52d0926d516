"""Denials in the log: of each principal once a minute, with how many there were since."""

from __future__ import annotations

import pytest

from broker.access import authorizer
from broker.access.authorizer import Denials
from broker.limits import DENIALS_TOLD_MS
from broker.wire.vocabulary import AclOperation, AclResource
from tests.broker.clock import ManualClock

READ = (AclOperation.READ, AclResource.TOPIC, "x")


def test_each_principal_is_told_of_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    denials = Denials(clock)
    for who in ("User:a", "User:b", "User:a", "User:a"):
        denials.note(who, "10.0.0.1", *READ)
    clock.advance(DENIALS_TOLD_MS - 1)
    denials.note("User:a", "10.0.0.1", *READ)
    assert caplog.messages == [f"{who} at 10.0.0.1 may not READ TOPIC 'x'" for who in ("User:a", "User:b")]
    clock.advance(1)
    denials.note("User:a", "10.0.0.2", AclOperation.WRITE, AclResource.TOPIC, "y")
    denials.note("User:b", "10.0.0.1", *READ)
    assert caplog.messages[2:] == [
        "User:a at 10.0.0.2 may not WRITE TOPIC 'y', and 3 times more since it was last said",
        "User:b at 10.0.0.1 may not READ TOPIC 'x'",
    ]
    assert denials.counts == {("READ", "TOPIC"): 6, ("WRITE", "TOPIC"): 1}


def test_of_many_principals_the_last_ones_are_remembered(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(authorizer, "DENIALS_REMEMBERED_MAX", 3)
    denials = Denials(ManualClock())
    for number in (1, 2, 3, 4, 4, 1):
        denials.note(f"User:{number}", "h", *READ)
    assert [message.split()[0] for message in caplog.messages] == [f"User:{n}" for n in (1, 2, 3, 4, 1)]
