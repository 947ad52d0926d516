"""What was asked for, and by whom: bytes in, values out."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import parse_qs, urlsplit

METRICS_PATH = "/metrics"


class NoRequest(ValueError):
    """Bytes that are no request of HTTP/1."""


@dataclass(frozen=True, slots=True)
class Request:
    """`headers` by their lower-case names; of one that comes twice the last."""

    method: str
    path: str
    names: tuple[str, ...]
    """Of the metrics that are asked for alone, as Prometheus' `name[]` has them; empty: all."""
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Refusal:
    status: HTTPStatus
    text: str
    headers: tuple[tuple[str, str], ...] = ()


def parse_request(head: bytes) -> Request:
    """`head` ends with the empty line. Raises NoRequest."""
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise NoRequest(first[:100])
    headers = {}
    for line in filter(None, lines):
        name, colon, value = line.partition(":")
        if not colon:
            raise NoRequest(line[:100])
        headers[name.strip().lower()] = value.strip()
    try:
        target = urlsplit(words[1])
        query = parse_qs(target.query, max_num_fields=1000)
    except ValueError as error:
        raise NoRequest(str(error)) from error
    return Request(words[0], target.path, tuple(query.get("name[]", ())), headers)


def is_token(request: Request, token: str) -> bool:
    """In a time that tells nothing of how much of it is right, nor of its length."""
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(
        hashlib.sha256(given.strip().encode("latin-1")).digest(), hashlib.sha256(token.encode()).digest()
    )


UNAUTHORIZED = Refusal(
    HTTPStatus.UNAUTHORIZED,
    "this page is shown to those who bring its token: Authorization: Bearer TOKEN",
    (("WWW-Authenticate", 'Bearer realm="farshore"'),),
)
TOO_LONG = Refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the request is too long")
UNREADABLE = Refusal(HTTPStatus.BAD_REQUEST, "that is no request of HTTP/1.1")


def refusal_of(request: Request) -> Refusal | None:
    """Of one who may see what there is; None: the metrics."""
    if request.method not in ("GET", "HEAD"):
        return Refusal(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are answered", (("Allow", "GET, HEAD"),))
    if request.path != METRICS_PATH:
        return Refusal(HTTPStatus.NOT_FOUND, f"there is only {METRICS_PATH}")
    return None


def answer_head(status: HTTPStatus, content_type: str, size_bytes: int, *more: tuple[str, str]) -> bytes:
    """The connection ends behind each answer."""
    headers = (
        ("Content-Type", content_type),
        ("Content-Length", str(size_bytes)),
        ("Cache-Control", "no-store"),
        ("Connection", "close"),
        *more,
    )
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{name}: {value}" for name, value in headers), "", ""]
    return "\r\n".join(lines).encode("latin-1")
