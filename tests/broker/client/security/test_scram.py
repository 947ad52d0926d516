"""SCRAM against the examples of RFC 5802 and RFC 7677, and against brokers that are none."""

from __future__ import annotations

import pytest

from broker.client.errors import AuthenticationFailed
from broker.client.security.scram import HASHES, ITERATIONS_MAX, ScramClient
from broker.client.security.settings import Mechanism
from tests.broker.client.security.scram_server import ScramServer

NONCE = "rOprNGfwEbeRWgbNEkqO"
SALT = "W22ZaJ0SNY7soEsUEjb6gQ=="
SERVER_FIRST = f"r={NONCE}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s={SALT},i=4096"
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def a_client(nonce: str = NONCE) -> ScramClient:
    return ScramClient(Mechanism.SCRAM_SHA_256, "user", "pencil", nonce)


def test_the_exchange_of_rfc_7677() -> None:
    client = a_client()
    assert client.begin() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert client.step(SERVER_FIRST.encode()) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert client.step(SERVER_FINAL) is None


def test_the_exchange_of_rfc_5802(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its hash is SHA-1, which Kafka has not, and farshore does not speak: the code is the same for all."""
    assert "SCRAM-SHA-1" not in {*Mechanism, *HASHES}
    monkeypatch.setitem(HASHES, Mechanism.SCRAM_SHA_256, "sha1")
    client = ScramClient(Mechanism.SCRAM_SHA_256, "user", "pencil", "fyko+d2lbbFgONRv9qkxdawL")
    assert client.begin() == b"n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL"
    assert client.step(b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096") == (
        b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts="
    )
    assert client.step(b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=") is None


@pytest.mark.parametrize(
    "first",
    [
        SERVER_FIRST.replace(NONCE, "another"),
        SERVER_FIRST.replace("%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", ""),
        SERVER_FIRST.replace("i=4096", "i=4095"),
        SERVER_FIRST.replace("i=4096", f"i={ITERATIONS_MAX + 1}"),
        SERVER_FIRST.replace("i=4096", "i=-1"),
        SERVER_FIRST.replace("i=4096", "i=४०९६"),
        SERVER_FIRST.replace("i=4096", "i="),
        SERVER_FIRST.replace(SALT, "***"),
        SERVER_FIRST.replace(SALT, ""),
        ",".join(reversed(SERVER_FIRST.split(","))),
        SERVER_FIRST.split(",")[0],
        f"m=extension,{SERVER_FIRST}",
        "",
        SERVER_FINAL.decode(),
        "e=unknown-user",
    ],
)
def test_what_is_no_answer_to_the_first_message_is_refused(first: str) -> None:
    client = a_client()
    client.begin()
    with pytest.raises(AuthenticationFailed):
        client.step(first.encode())


@pytest.mark.parametrize(
    "final", [b"", b"v=", b"v=AAAA", SERVER_FINAL[:-4], SERVER_FIRST.encode(), b"e=invalid-proof", b"\xff\xfe", b"v=!"]
)
def test_a_broker_that_does_not_know_the_password_is_found(final: bytes) -> None:
    client = a_client()
    client.begin()
    client.step(SERVER_FIRST.encode())
    with pytest.raises(AuthenticationFailed):
        client.step(final)


def test_an_answer_to_an_earlier_exchange_is_refused() -> None:
    client = a_client("another nonce")
    client.begin()
    with pytest.raises(AuthenticationFailed, match="nonce"):
        client.step(SERVER_FIRST.encode())


def test_an_exchange_that_goes_on_behind_its_end_is_refused() -> None:
    client = a_client()
    client.begin()
    client.step(SERVER_FIRST.encode())
    client.step(SERVER_FINAL)
    with pytest.raises(AuthenticationFailed):
        client.step(SERVER_FINAL)


@pytest.mark.parametrize("mechanism", sorted(HASHES))
@pytest.mark.parametrize(("user", "password"), [("farshore", "pencil"), ("a=b,c=2C", "é, =\"'"), ("ü", "\u2168")])
def test_both_sides_agree(mechanism: Mechanism, user: str, password: str) -> None:
    client, server = ScramClient(mechanism, user, password, "n"), ScramServer(mechanism, {user: password})
    first = server.answer(client.begin())
    assert first is not None
    proof = client.step(first)
    assert proof is not None
    final = server.answer(proof)
    assert final is not None
    assert client.step(final) is None


def test_a_server_that_lets_everybody_in_is_not_believed() -> None:
    client = a_client()
    server = ScramServer(Mechanism.SCRAM_SHA_256, {}, is_honest=False)
    first = server.answer(client.begin())
    assert first is not None
    final = server.answer(client.step(first) or b"")
    assert final is not None
    with pytest.raises(AuthenticationFailed, match="does not know the password"):
        client.step(final)


@pytest.mark.parametrize("mechanism", [each for each in Mechanism if each not in HASHES])
def test_what_is_no_scram_has_no_hash(mechanism: Mechanism) -> None:
    with pytest.raises(KeyError):
        ScramClient(mechanism, "user", "pencil", NONCE)
