"""An address that gives out tokens over HTTPS for client credentials, in a thread of the test."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import parse_qs

from broker.client.security.settings import Secret, TokenEndpoint
from tests.certificates import Authority

CLIENT, SECRET = "far:shore", "hunter2 &%"


class Endpoint(BaseHTTPRequestHandler):
    """`asked`: with which login, and what. `by_login`: what those are answered that come with another header."""

    answer: ClassVar[tuple[int, bytes]]
    by_login: ClassVar[dict[str, tuple[int, bytes]]]
    asked: ClassVar[list[tuple[str, dict[str, list[str]]]]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.asked.append((self.headers["Authorization"], parse_qs(body)))
        status, text = self.by_login.get(self.headers["Authorization"], self.answer)
        self.send_response(status)
        self.send_header("Location", "https://127.0.0.1:1/elsewhere")
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Tests say what they want to say."""


def given_out(token: str) -> bytes:
    return json.dumps({"access_token": token, "token_type": "Bearer", "expires_in": 60}).encode()


@contextmanager
def endpoint(
    authority: Authority, folder: Path, status: int, text: bytes
) -> Iterator[tuple[TokenEndpoint, type[Endpoint]]]:
    class Handler(Endpoint):
        answer = (status, text)
        by_login: ClassVar = {}
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
