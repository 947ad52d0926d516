"""What a login needs of secrets; tokens for OAUTHBEARER from an endpoint, by client credentials (RFC 6749, 4.4)."""

from __future__ import annotations

import base64
import json
from http.client import HTTPException
from typing import Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from broker.client.errors import SecretUnreadable
from broker.client.security.aws import signed_token
from broker.client.security.settings import AwsIdentity, Secret, SecretSource, Tls, TokenEndpoint
from broker.client.security.tls import context_of

TOKEN_TIMEOUT_S: Final = 10.0
ANSWER_MAX_BYTES: Final = 1024 * 1024
_HINT: Final = "check token_endpoint, client_id, the client's secret and scope in the site's security"


def read_secret(secret: SecretSource) -> str:
    """A password, or a token that was given out for this login. Blocks. Raises SecretUnreadable, SecurityInvalid."""
    if isinstance(secret, AwsIdentity):
        return signed_token(secret)
    return secret.read() if isinstance(secret, Secret) else _given_out(secret)


class _Stays(HTTPRedirectHandler):
    """Credentials go to the address that was configured and to no other."""

    def redirect_request(self, *_: object) -> None:
        return None


def _given_out(endpoint: TokenEndpoint) -> str:
    asked = {"grant_type": "client_credentials"} | ({"scope": endpoint.scope} if endpoint.scope else {})
    login = f"{quote(endpoint.client_id, safe='')}:{quote(endpoint.client_secret.read(), safe='')}"
    headers = {"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}", "Accept": "application/json"}
    opener = build_opener(HTTPSHandler(context=context_of(Tls(endpoint.ca_file))), _Stays())
    try:
        with opener.open(Request(endpoint.url, urlencode(asked).encode(), headers), timeout=TOKEN_TIMEOUT_S) as answer:
            text = answer.read(ANSWER_MAX_BYTES)
    except HTTPError as refused:
        with refused:
            why = _member(refused.read(ANSWER_MAX_BYTES), "error") or refused.reason
        raise SecretUnreadable(f"{endpoint} gives no token: {refused.code} {why}", _HINT) from None
    except (URLError, OSError, HTTPException) as error:
        why = str(error.reason) if isinstance(error, URLError) else type(error).__name__
        raise SecretUnreadable(f"{endpoint} cannot be asked: {why}", _HINT) from None
    token = _member(text, "access_token")
    if token is None or not token.isascii() or not token.isprintable():
        raise SecretUnreadable(f"{endpoint} answers without a token", _HINT)
    return token


def _member(text: bytes, name: str) -> str | None:
    """Of an object in JSON, where it is text."""
    try:
        answer = json.loads(text)
    except ValueError:
        return None
    found = answer.get(name) if isinstance(answer, dict) else None
    return found if isinstance(found, str) and found else None
