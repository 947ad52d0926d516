"""Metrics over HTTP, as clients of others see them: who gets them, and what those cost who get none."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import ssl
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest

from broker.base.address import Address, parse_address
from broker.base.reloaded import AccessInvalid
from broker.base.server_tls import ServerTls
from broker.client.errors import SecretUnreadable
from broker.client.security.settings import Secret
from broker.http import limits
from broker.http.errors import FaceOpen
from broker.http.face import Page, http_face
from broker.http.settings import FaceSettings
from broker.http.token import Token
from tests.broker.clock import ManualClock
from tests.certificates import Authority, KeyPair

HERE = Address("127.0.0.1", 0)
REFUSED = (OSError, asyncio.IncompleteReadError)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


def page(accept: str, names: Sequence[str]) -> Page:
    return Page("text/plain", b"up 1\n")


@asynccontextmanager
async def shown(settings: FaceSettings) -> AsyncIterator[str]:
    async with http_face(settings, page) as url:
        yield url


async def got(url: str, token: str | None = None, context: ssl.SSLContext | None = None) -> tuple[int, str]:
    """Status and body."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    def ask() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, headers=headers), context=context) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    return await asyncio.to_thread(ask)


def trusting(authority: Authority, own: KeyPair | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.certificate)
    if own is not None:
        context.load_cert_chain(own.certificate, own.key)
    return context


def file_of(tmp_path: Path, text: str) -> Secret:
    file = tmp_path / "token"
    file.write_text(text + "\n")
    return Secret(file=file)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "one.example"])
async def test_what_asks_nobody_is_shown_to_this_machine_alone(host: str, authority: Authority) -> None:
    pair = authority.sign("face")
    for settings in (
        FaceSettings(Address(host, 0)),
        FaceSettings(Address(host, 0), ServerTls(pair.certificate, pair.key)),
    ):
        with pytest.raises(FaceOpen, match="would show metrics to everybody") as refused:
            async with shown(settings):
                pass
        assert "127.0.0.1" in refused.value.hint
        assert "token_file" in refused.value.hint


async def test_with_a_token_every_interface_may_show_it_and_plainly_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    secret = file_of(tmp_path, "secret")
    async with shown(FaceSettings(Address("0.0.0.0", 0), token=secret)) as url:
        here = url.replace("0.0.0.0", "127.0.0.1")
        assert await got(here, "secret") == (200, "up 1\n")
        assert (await got(here))[0] == 401
    assert "passes unencrypted" in caplog.text


async def test_a_wrong_token_is_told_late_and_nothing_of_what_there_is(tmp_path: Path) -> None:
    async with shown(FaceSettings(HERE, token=file_of(tmp_path, "secret"))) as url:
        began_s = asyncio.get_running_loop().time()
        for path in (url, url.replace("/metrics", "/other")):
            status, text = await got(path, "secreT")
            assert status == 401
            assert "Bearer" in text
        assert asyncio.get_running_loop().time() - began_s >= 2 * limits.REFUSED_MS / 1000
        assert (await got(url.replace("/metrics", "/other"), "secret"))[0] == 404


@pytest.mark.parametrize("kind", ["file", "environment", "command"])
async def test_a_token_is_had_from_a_file_a_variable_or_a_program(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, "FARSHORE_TOKEN", "secret")
    secrets = {
        "file": file_of(tmp_path, "secret"),
        "environment": Secret(environment="FARSHORE_TOKEN"),
        "command": Secret(command=("echo", "secret")),
    }
    async with shown(FaceSettings(HERE, token=secrets[kind])) as url:
        assert (await got(url, "secret"))[0] == 200


async def test_a_token_that_cannot_be_had_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(SecretUnreadable, match="missing"):
        async with shown(FaceSettings(HERE, token=Secret(file=tmp_path / "missing"))):
            pass


async def test_a_token_that_changes_is_taken_up_and_one_that_is_gone_keeps_the_old(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    token = Token(file_of(tmp_path, "first"), clock)
    await token.begin()
    file_of(tmp_path, "second")
    assert await token.current() == "first"
    clock.advance(limits.TOKEN_KEPT_MS)
    assert await token.current() == "second"
    (tmp_path / "token").unlink()
    for _ in range(3):
        clock.advance(limits.TOKEN_KEPT_MS)
        assert await token.current() == "second"
    assert caplog.text.count("the one before goes on") == 1
    file_of(tmp_path, "third")
    clock.advance(limits.TOKEN_KEPT_MS)
    assert await token.current() == "third"


async def test_clients_that_have_to_show_a_certificate_get_nothing_without(
    tmp_path: Path, authority: Authority
) -> None:
    pair, own = authority.sign("face"), authority.sign("prometheus")
    stranger = Authority(tmp_path / "other", "other").sign("stranger")
    tls = ServerTls.of_face(pair.certificate, pair.key, authority.certificate)
    async with shown(FaceSettings(HERE, tls)) as url:
        assert await got(url, context=trusting(authority, own)) == (200, "up 1\n")
        for other in (None, stranger):
            with pytest.raises(OSError):
                await got(url, context=trusting(authority, other))


async def test_certificate_and_token_are_both_asked_for_where_both_are_named(
    tmp_path: Path, authority: Authority
) -> None:
    pair, own = authority.sign("face"), authority.sign("prometheus")
    tls = ServerTls.of_face(pair.certificate, pair.key, authority.certificate)
    async with shown(FaceSettings(HERE, tls, file_of(tmp_path, "secret"))) as url:
        assert (await got(url, context=trusting(authority, own)))[0] == 401
        assert (await got(url, "secret", trusting(authority, own)))[0] == 200
        with pytest.raises(OSError):
            await got(url, "secret", trusting(authority))


async def test_a_certificate_that_changes_on_disk_is_shown_to_the_next(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    first = authority.sign("first")
    files = [shutil.copy(file, tmp_path) for file in (first.certificate, first.key)]
    certificate, key = map(Path, files)
    async with shown(FaceSettings(HERE, ServerTls(certificate, key))) as url:
        before = await _serial(url, authority)
        key.write_text("half a file")
        assert await _serial(url, authority) == before
        assert "what was read before goes on" in caplog.text
        second = authority.sign("second")
        shutil.copy(second.key, key)
        shutil.copy(second.certificate, certificate)
        assert await _serial(url, authority) != before


async def _serial(url: str, authority: Authority) -> str:
    address = parse_address(url.split("/")[2])
    _, writer = await asyncio.open_connection(*address, ssl=trusting(authority))
    serial = writer.get_extra_info("ssl_object").getpeercert()["serialNumber"]
    writer.close()
    with suppress(*REFUSED):
        await writer.wait_closed()
    return str(serial)


async def test_files_that_are_no_certificate_are_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "none.pem").write_text("nothing")
    with pytest.raises(AccessInvalid, match=r"none\.pem"):
        async with shown(FaceSettings(HERE, ServerTls(tmp_path / "none.pem"))):
            pass


@pytest.mark.parametrize(
    ("sent", "status"),
    [(b"x" * 2 * limits.HEAD_BYTES_MAX, b"431"), (b"hello\r\n\r\n", b"400"), (b"GET /metrics SPDY/9\r\n\r\n", b"400")],
)
async def test_what_is_no_request_is_answered_so_and_ends(sent: bytes, status: bytes) -> None:
    async with shown(FaceSettings(HERE)) as url:
        reader, writer = await asyncio.open_connection(*parse_address(url.split("/")[2]))
        writer.write(sent)
        answer = b""
        with suppress(ConnectionError):
            answer = await reader.read()
        assert answer.split(b" ")[1:2] in ([status], [])
        writer.close()
        assert (await got(url))[0] == 200


@asynccontextmanager
async def silent(url: str, count: int) -> AsyncIterator[list[asyncio.StreamReader]]:
    """So many that connect and say nothing."""
    there = []
    async with AsyncExitStack() as ending:
        for _ in range(count):
            reader, writer = await asyncio.open_connection(*parse_address(url.split("/")[2]))
            ending.callback(writer.close)
            there.append(reader)
        yield there


@pytest.mark.parametrize("is_locked", [False, True])
async def test_those_who_say_nothing_keep_nobody_out(authority: Authority, is_locked: bool) -> None:
    pair = authority.sign("face")
    tls, context = (ServerTls(pair.certificate, pair.key), trusting(authority)) if is_locked else (None, None)
    async with shown(FaceSettings(HERE, tls)) as url, silent(url, limits.CONNECTIONS_MAX + 5) as there:
        async with asyncio.timeout(limits.REQUEST_MS / 1000 / 2):
            assert await got(url, context=context) == (200, "up 1\n")
            for reader in there[:6]:
                with suppress(ConnectionError):
                    assert await reader.read() == b""
            assert not there[-1].at_eof()


async def test_who_has_shown_who_he_is_goes_for_nobody(tmp_path: Path) -> None:
    asked, go_on = threading.Event(), threading.Event()

    def slow(accept: str, names: Sequence[str]) -> Page:
        asked.set()
        assert go_on.wait(60)
        return page(accept, names)

    async with http_face(FaceSettings(HERE, token=file_of(tmp_path, "secret")), slow) as url:
        scrape = asyncio.create_task(got(url, "secret"))
        assert await asyncio.to_thread(asked.wait, 60)
        async with silent(url, limits.CONNECTIONS_MAX + 1) as there:
            with suppress(ConnectionError):
                assert await there[0].read() == b""
            go_on.set()
            assert await scrape == (200, "up 1\n")


async def test_those_who_say_nothing_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REQUEST_MS", 100)
    async with shown(FaceSettings(HERE)) as url, silent(url, 3) as there:
        for reader in there:
            with suppress(ConnectionError):
                assert await reader.read() == b""


async def test_it_ends_while_somebody_says_nothing() -> None:
    async with shown(FaceSettings(HERE)) as url:
        _, writer = await asyncio.open_connection(*parse_address(url.split("/")[2]))
    writer.close()


def curl(*words: str) -> Callable[[], str]:
    return lambda: subprocess.run(["curl", "-sS", *words], capture_output=True, text=True, check=True).stdout


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_curl_reads_it(tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    pair = authority.sign("face")
    settings = FaceSettings(HERE, ServerTls(pair.certificate, pair.key), file_of(tmp_path, "secret"))
    with caplog.at_level(logging.WARNING):
        async with shown(settings) as url:
            words = ("--cacert", str(authority.certificate), "-H", "Authorization: Bearer secret", url)
            assert await asyncio.to_thread(curl(*words)) == "up 1\n"
            assert "Content-Length: 5" in await asyncio.to_thread(curl("-I", *words))
    assert not caplog.text
