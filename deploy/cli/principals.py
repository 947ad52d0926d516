"""As whom farshore logs in, for errors that say that a right is missing: brokers do not say whose."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from broker.client.errors import KafkaError
from broker.client.security.settings import Security
from broker.client.site import Site
from broker.wire.errors import ErrorCode

MISSING_RIGHT = frozenset(code for code in ErrorCode if code.name.endswith("_AUTHORIZATION_FAILED"))


def told_principals(errors: Iterable[BaseException], sites: Callable[[], Mapping[str, Site]]) -> str:
    """Of the sites that these errors name, else of all that ask for a login; "" where no right is missing. The `sites`
    are those of a file that cannot be read, it may be, and then no site was asked.
    """
    missing = [str(error) for error in errors if isinstance(error, KafkaError) and error.code in MISSING_RIGHT]
    if not missing:
        return ""
    known = {name: who for name, site in sites().items() if (who := _principal(site.security))}
    named = {name: who for name, who in known.items() if any(name in _words_of(text) for text in missing)}
    return ", ".join(f"{who} at {name}" for name, who in (named or known).items())


def _words_of(text: str) -> set[str]:
    return {word.strip(".,:;()") for word in text.split()}


def _principal(security: Security) -> str:
    if security.sasl is not None:
        return security.sasl.principal
    if security.tls is not None and security.tls.certificate_file is not None:
        return f"the subject of {security.tls.certificate_file}"
    return ""
