"""Requests as values: what is read of them, and who is let in."""

from __future__ import annotations

from http import HTTPStatus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.http.requests import NoRequest, Request, is_token, parse_request, refusal_of


def asked(authorization: str | None = None, method: str = "GET", path: str = "/metrics") -> Request:
    return Request(method, path, (), {} if authorization is None else {"authorization": authorization})


def test_what_prometheus_sends_is_read() -> None:
    head = (
        b"GET /metrics?name[]=up&name[]=down HTTP/1.1\r\nHost: one:9600\r\nAccept: text/plain;version=0.0.4\r\n"
        b"authorization:  Bearer abc \r\n\r\n"
    )
    request = parse_request(head)
    assert (request.method, request.path, request.names) == ("GET", "/metrics", ("up", "down"))
    assert request.headers["accept"] == "text/plain;version=0.0.4"
    assert is_token(request, "abc")


@pytest.mark.parametrize(
    "authorization", [None, "", "Bearer", "Bearer ", "Bearer secre", "Bearer secret2", "Basic secret", "secret"]
)
def test_only_the_whole_token_lets_in(authorization: str | None) -> None:
    assert not is_token(asked(authorization), "secret")


def test_a_token_beyond_ascii_is_compared_by_its_bytes() -> None:
    assert is_token(parse_request("GET / HTTP/1.1\r\nAuthorization: Bearer gehëim\r\n\r\n".encode()), "gehëim")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_request_or_none(data: bytes) -> None:
    try:
        request = parse_request(data + b"\r\n\r\n")
    except NoRequest:
        return
    assert not is_token(request, "secret") or b"secret" in data


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/metrics", None),
        ("HEAD", "/metrics", None),
        ("POST", "/metrics", HTTPStatus.METHOD_NOT_ALLOWED),
        ("GET", "/", HTTPStatus.NOT_FOUND),
        ("GET", "/metrics/../etc", HTTPStatus.NOT_FOUND),
    ],
)
def test_there_is_one_page(method: str, path: str, status: HTTPStatus | None) -> None:
    refusal = refusal_of(asked(method=method, path=path))
    assert (None if refusal is None else refusal.status) == status
