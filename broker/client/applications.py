"""How aiokafka's clients are told to reach a site, as applications there are."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka.abc import AbstractTokenProvider

from broker.client.errors import SecurityInvalid
from broker.client.security.settings import KerberosIdentity, Mechanism, Sasl, SecretSource
from broker.client.security.tls import context_of
from broker.client.security.tokens import read_secret
from broker.client.site import Site


class _Token(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types
    def __init__(self, secret: SecretSource) -> None:
        self._secret = secret

    async def token(self) -> str:
        return await asyncio.to_thread(read_secret, self._secret)


async def client_options(site: Site) -> dict[str, Any]:
    """Its servers, and its security as it is now. Raises SecretUnreadable, SecurityInvalid."""
    security = site.security
    options: dict[str, Any] = {"bootstrap_servers": site.bootstrap_servers, "security_protocol": security.protocol}
    if security.tls is not None:
        options["ssl_context"] = await asyncio.to_thread(context_of, security.tls)
    return options if security.sasl is None else options | await _login_options(site.name, security.sasl)


async def _login_options(site: str, sasl: Sasl) -> dict[str, Any]:
    if isinstance(sasl.secret, KerberosIdentity):
        # Its own way takes whatever ticket the process has, and waits for the KDC with all else standing still.
        raise SecurityInvalid(
            f"aiokafka, by which the canary and chaos runs reach site {site}, cannot log in by {sasl.mechanism}",
            "run them with a configuration file in which the site has a listener for another mechanism",
        )
    options: dict[str, Any] = {"sasl_mechanism": sasl.mechanism.value}
    if sasl.mechanism is Mechanism.OAUTHBEARER:
        return options | {"sasl_oauth_token_provider": _Token(sasl.secret)}
    secret = await asyncio.to_thread(read_secret, sasl.secret)
    return options | {"sasl_plain_username": sasl.username, "sasl_plain_password": secret}
