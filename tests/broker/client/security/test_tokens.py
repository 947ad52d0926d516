"""Tokens from an endpoint over HTTPS."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qs

import pytest

from broker.client.errors import SecretUnreadable
from broker.client.security.settings import Secret, TokenEndpoint
from broker.client.security.tokens import read_secret
from tests.certificates import Authority

CLIENT, SECRET = "far:shore", "hunter2 &%"


class _Endpoint(BaseHTTPRequestHandler):
    answer: ClassVar[tuple[int, bytes]]
    asked: ClassVar[list[tuple[str, dict[str, list[str]]]]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.asked.append((self.headers["Authorization"], parse_qs(body)))
        status, text = self.answer
        self.send_response(status)
        self.send_header("Location", "https://127.0.0.1:1/elsewhere")
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Tests say what they want to say."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@contextmanager
def endpoint(
    authority: Authority, folder: Path, status: int, text: bytes
) -> Iterator[tuple[TokenEndpoint, type[_Endpoint]]]:
    class Handler(_Endpoint):
        answer = (status, text)
        asked: ClassVar = []

    pair = authority.sign("endpoint")
    (folder / "secret").write_text(SECRET)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pair.certificate, pair.key)
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            url = f"https://127.0.0.1:{server.server_port}/token"
            yield TokenEndpoint(url, CLIENT, Secret(file=folder / "secret"), "kafka", authority.certificate), Handler
        finally:
            server.shutdown()
            thread.join()


def test_client_credentials_get_a_token(authority: Authority, tmp_path: Path) -> None:
    given = json.dumps({"access_token": "a.b.c", "token_type": "Bearer", "expires_in": 60}).encode()
    with endpoint(authority, tmp_path, 200, given) as (access, handler):
        assert read_secret(access) == "a.b.c"
    ((login, form),) = handler.asked
    assert base64.b64decode(login.removeprefix("Basic ")) == b"far%3Ashore:hunter2%20%26%25"
    assert form == {"grant_type": ["client_credentials"], "scope": ["kafka"]}


@pytest.mark.parametrize(
    ("status", "text", "words"),
    [
        (401, b'{"error": "invalid_client", "error_description": "hunter2"}', "401 invalid_client"),
        (500, b"oops", "500"),
        (302, b"", "302"),
        (200, b"", "without a token"),
        (200, b"[]", "without a token"),
        (200, b'{"access_token": 7}', "without a token"),
        (200, b'{"access_token": "a\\u0001b"}', "without a token"),
        (200, b"\xff", "without a token"),
    ],
)
def test_no_token_is_an_error_that_says_why(
    authority: Authority, tmp_path: Path, status: int, text: bytes, words: str
) -> None:
    with endpoint(authority, tmp_path, status, text) as (access, handler), pytest.raises(SecretUnreadable) as caught:
        read_secret(access)
    assert words in str(caught.value)
    assert access.url in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert len(handler.asked) == 1, "what is refused is not asked elsewhere"


def test_an_endpoint_that_is_not_there_or_not_itself(authority: Authority, tmp_path: Path) -> None:
    with endpoint(authority, tmp_path, 200, b'{"access_token": "t"}') as (access, handler):
        stranger = Authority(tmp_path / "other").certificate
        with pytest.raises(SecretUnreadable, match="cannot be asked"):
            read_secret(TokenEndpoint(access.url, CLIENT, access.client_secret, None, stranger))
        assert handler.asked == []
    with pytest.raises(SecretUnreadable, match="cannot be asked"):
        read_secret(access)
