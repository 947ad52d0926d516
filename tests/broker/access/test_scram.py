"""The broker's side of SCRAM against the examples of RFC 5802 and 7677, our own client, and clients that cheat."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from broker.access.scram import LoginRefused, ScramServer
from broker.access.users import Credential
from broker.client.security.scram import HASHES, ScramClient
from broker.client.security.settings import Mechanism

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
FINAL = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"


def a_server(mechanism: Mechanism = Mechanism.SCRAM_SHA_256, password: str = "pencil") -> ScramServer:
    return ScramServer(mechanism, lambda _: Credential.of(mechanism, password, SALT, 4096), NONCE)


async def test_the_exchange_of_rfc_7677() -> None:
    server = a_server()
    first = await server.step(FIRST)
    assert first == f"r=rOprNGfwEbeRWgbNEkqO{NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
    assert server.user is None
    assert await server.step(FINAL) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert server.user == "user"


async def test_the_exchange_of_rfc_5802(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of SHA-1, which is no mechanism of ours: by the same code, and in another one's place."""
    sha_1 = Mechanism.SCRAM_SHA_256
    monkeypatch.setitem(HASHES, sha_1, "sha1")
    one = Credential.of(sha_1, "pencil", base64.b64decode("QSXCR+Q6sek8bf92"), 4096)
    server = ScramServer(sha_1, lambda _: one, "3rfcNHYJY1ZVvWVs7j")
    first = await server.step(b"n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL")
    assert first == b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096"
    proof = b"p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts="
    final = b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j," + proof
    assert await server.step(final) == b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ="
    assert server.user == "user"


@pytest.mark.parametrize("mechanism", HASHES)
@pytest.mark.parametrize("user", ["shop", "a=b,c", "Ünï code"])
async def test_our_client_logs_in(mechanism: Mechanism, user: str) -> None:
    server, client = a_server(mechanism, "pässword"), ScramClient(mechanism, user, "pässword", "abc")
    token: bytes | None = client.begin()
    while token is not None:
        token = client.step(await server.step(token))
    assert server.user == user


@pytest.mark.parametrize("mechanism", HASHES)
async def test_another_password_is_refused(mechanism: Mechanism) -> None:
    server, client = a_server(mechanism), ScramClient(mechanism, "user", "pen", "abc")
    final = client.step(await server.step(client.begin()))
    assert final is not None
    with pytest.raises(LoginRefused, match="invalid credentials"):
        await server.step(final)
    assert server.user is None


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"\xff\xfe",
        b"n,,n=user",
        b"n,,n=user,r=",
        b"n,,n=,r=abc",
        b"n,,m=must,n=user,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"n,a=other,n=user,r=abc",
        b"n,,n=us=er,r=abc",
        b"n,,n=user,r=a c",
        FIRST[:-22],
        FINAL,
    ],
)
async def test_what_does_not_begin_an_exchange_is_refused(first: bytes) -> None:
    with pytest.raises(LoginRefused):
        await a_server().step(first)


@pytest.mark.parametrize(
    "final",
    [
        b"",
        FIRST,
        FINAL.replace(b"c=biws", b"c=eSws"),
        FINAL.replace(b"c=biws", b"c=!!"),
        FINAL.replace(NONCE.encode(), b"stale"),
        FINAL.replace(b"p=dHz", b"p=dHy"),
        FINAL[:-5],
        FINAL.split(b",p=", maxsplit=1)[0],
        FINAL.split(b"p=", maxsplit=1)[0] + b"p=",
    ],
)
async def test_what_does_not_end_it_well_is_refused(final: bytes) -> None:
    server = a_server()
    await server.step(FIRST)
    with pytest.raises(LoginRefused):
        await server.step(final)
    assert server.user is None


OWN = "rOprNGfwEbeRWgbNEkqO"


async def test_a_nonce_with_the_clients_own_before_it_once_more_is_taken() -> None:
    """As librdkafka before 2.6.1 sends it; what it signs has it, too."""
    server = a_server(password="pencil")
    assert (await server.step(await proof_for(server, OWN))).startswith(b"v=")
    assert server.user == "user"


@pytest.mark.parametrize("before", ["x", OWN[1:], OWN * 2, f"x{OWN}"])
async def test_a_nonce_with_anything_else_before_it_is_refused(before: str) -> None:
    server = a_server(password="pencil")
    with pytest.raises(LoginRefused):
        await server.step(await proof_for(server, before))


async def proof_for(server: ScramServer, before: str) -> bytes:
    """What a client ends with that knows the password, and puts that before the nonce."""
    password = "pencil"
    first = (await server.step(FIRST)).decode()
    bare = f"c=biws,r={before}{OWN}{NONCE}"
    signed = f"n=user,r={OWN},{first},{bare}".encode()
    client_key = hmac.digest(hashlib.pbkdf2_hmac("sha256", password.encode(), SALT, 4096), b"Client Key", "sha256")
    signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
    return f"{bare},p={proof}".encode()


async def test_nothing_comes_behind_the_end() -> None:
    server = a_server()
    await server.step(FIRST)
    await server.step(FINAL)
    with pytest.raises(LoginRefused):
        await server.step(FINAL)
