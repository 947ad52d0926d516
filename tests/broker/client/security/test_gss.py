"""SASL's GSSAPI: what is sent in which order, and what is not taken."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from broker.client.errors import AuthenticationFailed
from broker.client.security.gss import GssapiClient


@dataclass
class TwoRounds:
    """A context that is complete when it has seen the other side's tokens, of which it answers the first `answers`."""

    answers: int = 1
    seen: list[bytes | None] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        return len(self.seen) > self.answers

    def step(self, token: bytes | None) -> bytes | None:
        self.seen.append(token)
        return None if self.is_complete else b"token %d" % len(self.seen)

    def unwrap(self, message: bytes) -> bytes:
        return message.removeprefix(b"sealed ")

    def wrap(self, message: bytes) -> bytes:
        return b"sealed " + message


def at_the_layers() -> GssapiClient:
    client = GssapiClient(TwoRounds())
    assert client.begin() == b"token 1"
    assert client.step(b"theirs") == b"", "the broker waits for a message also where there is nothing to say"
    return client


def test_no_layer_is_chosen_and_nobody_else_is_named() -> None:
    client = at_the_layers()
    assert client.step(b"sealed \x07\x01\x00\x00") == b"sealed \x01\x00\x00\x00"
    assert client.step(b"") is None


def test_tokens_go_to_and_fro_until_the_context_is_complete() -> None:
    context = TwoRounds(answers=2)
    client = GssapiClient(context)
    assert [client.begin(), client.step(b"a"), client.step(b"b")] == [b"token 1", b"token 2", b""]
    assert context.seen == [None, b"a", b"b"]


@pytest.mark.parametrize(
    ("offered", "why"),
    [
        (b"sealed \x06\x01\x00\x00", "asks for a security layer"),
        (b"sealed \x01\x00\x00", "sends what is not GSSAPI"),
        (b"sealed \x01\x00\x00\x00farshore", "sends what is not GSSAPI"),
        (b"", "sends what is not GSSAPI"),
    ],
)
def test_another_offer_is_not_taken(offered: bytes, why: str) -> None:
    with pytest.raises(AuthenticationFailed, match=why) as caught:
        at_the_layers().step(offered)
    assert caught.value.hint


def test_nothing_follows_the_choice() -> None:
    client = at_the_layers()
    client.step(b"sealed \x01\x00\x00\x00")
    with pytest.raises(AuthenticationFailed, match="goes on with GSSAPI"):
        client.step(b"more")
