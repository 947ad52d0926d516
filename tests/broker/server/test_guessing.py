"""Who guesses users and passwords: what he learns, how fast, and whom he holds up. On both event loops."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from broker.access.users import Credential, Users, write_users
from broker.client.security.scram import HASHES, ScramClient
from broker.client.security.settings import Mechanism
from broker.server import Server
from broker.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from tests.broker.running_cluster import WAIT_S, until
from tests.broker.server.test_locked_cluster import locked_cluster
from tests.broker.server.test_logins import GOOD, PASSWORD, USERS, guarded, log_in, present, refused_late, shake
from tests.broker.wire_client import WireClient, connect
from tests.certificates import Authority

COUNT = 20
"""Of those who try passwords at once."""


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"\0shop",
        b"\0shop\0",
        b"\0\0" + PASSWORD.encode(),
        b"\0shop\0wrong",
        b"\0nobody\0" + PASSWORD.encode(),
        b"reader\0shop\0" + PASSWORD.encode(),
        GOOD + b"\0",
        GOOD[:-1],
        b"\xff" * 30,
    ],
)
async def test_a_wrong_token_of_plain_is_refused_later_than_it_is_known(tmp_path: Path, token: bytes) -> None:
    async with guarded(tmp_path) as server, connect(server.address) as client:
        async with refused_late():
            answer = await log_in(client, token)
        assert answer.error_code == 58
        assert PASSWORD not in (answer.error_message or "")
        assert await client.is_closed()


@pytest.mark.parametrize("user", ["shop", "nobody"])
@pytest.mark.parametrize("mechanism", HASHES)
async def test_a_wrong_proof_of_scram_is_refused_later_than_it_is_known(
    tmp_path: Path, mechanism: Mechanism, user: str
) -> None:
    async with guarded(tmp_path) as server, connect(server.address) as client:
        assert await shake(client, mechanism) == 0
        scram = ScramClient(mechanism, user, "wrong", "abc")
        proof = scram.step(bytes((await present(client, scram.begin())).auth_bytes))
        assert proof is not None
        async with refused_late():
            answer = await present(client, proof)
        assert answer.error_code == 58
        assert "invalid credentials" in (answer.error_message or "")
        assert await client.is_closed()


async def asked(server: Server, user: str) -> tuple[str, str]:
    """Before he shows that he knows a password -> the salt, in base64, and iterations."""
    async with connect(server.address) as client:
        assert await shake(client, "SCRAM-SHA-256") == 0
        first = ScramClient(Mechanism.SCRAM_SHA_256, user, "x", "abc").begin()
        text = bytes((await present(client, first)).auth_bytes).decode()
        said = dict(part.split("=", 1) for part in text.split(","))
        return said["s"], said["i"]


async def test_who_is_not_known_is_asked_as_who_is(tmp_path: Path) -> None:
    async with guarded(tmp_path) as server:
        known, unknown, other = [await asked(server, user) for user in ("shop", "nobody", "none")]
        assert (len(unknown[0]), unknown[1]) == (len(known[0]), known[1])
        assert unknown != other
        assert await asked(server, "nobody") == unknown
    async with guarded(tmp_path) as server:
        assert await asked(server, "nobody") == unknown, "as with a user a restart changes nothing"
    (tmp_path / "another cluster").mkdir()
    async with guarded(tmp_path / "another cluster") as server:
        assert await asked(server, "nobody") != unknown


async def test_who_is_not_known_is_asked_the_same_by_all_brokers(tmp_path: Path) -> None:
    async with locked_cluster(tmp_path, Authority(tmp_path / "ca")) as cluster:
        for user in ("shop", "nobody"):
            assert len({await asked(server, user) for server in cluster.servers.values()}) == 1


async def test_a_login_by_plain_takes_the_same_work_whoever_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who takes less, or more, than who is not known could be told from him by a clock."""
    few, many = Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512
    users: Users = {
        **USERS,
        "few": {few: Credential.of(few, PASSWORD, b"salt", 4096)},
        "many": {many: Credential.of(many, PASSWORD, b"salt", 16384)},
    }
    work, really = Counter[str](), hashlib.pbkdf2_hmac
    of_passwords = "bytes of passwords"

    def counted(name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
        work[name] += iterations
        work[of_passwords] += len(password)
        return really(name, password, salt, iterations)

    write_users(tmp_path / "other.json", users)
    monkeypatch.setattr(hashlib, "pbkdf2_hmac", counted)
    async with guarded(tmp_path, sasl_users_file=tmp_path / "other.json") as server:
        for user in (*users, "nobody"):
            for password in (PASSWORD, "x" * len(PASSWORD)):
                work.clear()
                async with connect(server.address) as client:
                    is_in = (await log_in(client, f"\0{user}\0{password}".encode())).error_code == 0
                assert is_in is (user != "nobody" and password == PASSWORD)
                assert dict(work) == {"sha256": 8192, "sha512": 16384, of_passwords: 2 * len(PASSWORD)}, user


class Held:
    """Stands in for the work of a password, which is done when `release` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.release = threading.Event()
        self.passwords, self.running_most = list[bytes](), 0
        self._running = 0
        monkeypatch.setattr(hashlib, "pbkdf2_hmac", self._work)

    def _work(self, name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
        self.passwords.append(password)
        self._running += 1
        self.running_most = max(self.running_most, self._running)
        self.release.wait(WAIT_S)
        self._running -= 1
        return b""


async def begin_login(client: WireClient, password: str) -> None:
    assert await shake(client) == 0
    await client.send(SaslAuthenticateRequest(f"\0shop\0{password}".encode()), 2)


@pytest.mark.parametrize(("host", "place"), [("127.0.0.2", 2), ("127.0.0.1", COUNT)])
async def test_who_tries_many_passwords_holds_up_no_other_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, place: int
) -> None:
    held = Held(monkeypatch)
    async with guarded(tmp_path) as server, AsyncExitStack() as clients:
        for number in range(COUNT):
            client = await clients.enter_async_context(connect(server.address))
            await begin_login(client, f"guess {number}")
        await until(lambda: sum(each.busy for each in server.connections) == COUNT)
        honest = await clients.enter_async_context(connect(server.address, host))
        await begin_login(honest, PASSWORD)
        await until(lambda: sum(each.busy for each in server.connections) == COUNT + 1)
        held.release.set()
        await until(lambda: len(held.passwords) == COUNT + 1)
        assert held.passwords.index(PASSWORD.encode()) == place


async def test_who_has_to_go_ends_no_work_that_was_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one's would begin beside it: who comes again and again had any number of threads to himself."""
    monkeypatch.setattr("broker.server.STRANGERS_MAX", 1)
    held = Held(monkeypatch)
    async with guarded(tmp_path) as server, connect(server.address) as leaving:
        await begin_login(leaving, "guess")
        await until(lambda: len(held.passwords) == 1)
        async with connect(server.address) as next_one:
            await begin_login(next_one, PASSWORD)
            assert await leaving.is_closed()
            await until(lambda: any(each.busy for each in server.connections))
            await asyncio.to_thread(lambda: None)  # what was begun before it runs by now
            held.release.set()
            await until(lambda: len(held.passwords) == 2)
        assert held.running_most == 1
