"""Tokens from an endpoint over HTTPS."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path

import pytest

from broker.base.documents import HIDDEN
from broker.client.errors import SecretUnreadable
from broker.client.security.settings import Secret, TokenEndpoint, shown_address
from broker.client.security.tokens import read_secret
from tests.certificates import Authority
from tests.token_endpoint import CLIENT, endpoint, given_out


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


def test_client_credentials_get_a_token(authority: Authority, tmp_path: Path) -> None:
    with endpoint(authority, tmp_path, 200, given_out("a.b.c")) as (access, handler):
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
        read_secret(replace(access, url=f"{access.url}?key=hunter2"))
    assert words in str(caught.value)
    assert access.url in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert len(handler.asked) == 1, "what is refused is not asked elsewhere"


def test_an_endpoint_that_is_not_there_or_not_itself(authority: Authority, tmp_path: Path) -> None:
    with endpoint(authority, tmp_path, 200, b'{"access_token": "t"}') as (access, handler):
        stranger = Authority(tmp_path / "other").certificate
        with pytest.raises(SecretUnreadable, match="cannot be asked") as not_itself:
            read_secret(TokenEndpoint(f"{access.url}?key=hunter2", CLIENT, access.client_secret, None, stranger))
        assert handler.asked == []
    with pytest.raises(SecretUnreadable, match="cannot be asked") as not_there:
        read_secret(replace(access, url=f"{access.url}?key=hunter2"))
    assert "hunter2" not in f"{not_itself.value}{not_there.value}"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://login.example", "https://login.example"),
        ("https://login.example/token", "https://login.example/token"),
        ("https://login.example/at@token?key=hunter2", f"https://login.example/at@token?{HIDDEN}"),
        ("https://login.example?key=hunter2/token", f"https://login.example?{HIDDEN}"),
        ("https://far@shore:hunter2@login.example:8443/token#hunter2", "https://login.example:8443/token"),
    ],
)
def test_of_an_address_neither_a_user_nor_a_query_is_shown(url: str, shown: str) -> None:
    assert shown_address(url) == shown
    assert str(TokenEndpoint(url, CLIENT, Secret(environment="P"))) == f"the token endpoint {shown}"
