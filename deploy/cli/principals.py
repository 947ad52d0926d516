"""As whom farshore logs in, for errors that say that a right is missing: brokers do not say whose."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from broker.client.errors import KafkaError
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
    known = {name: site.security for name, site in sites().items()}
    named = [name for name in known if any(name in _words_of(text) for text in missing)]
    asked = named or [name for name, security in known.items() if security.principal]
    return ", ".join(f"{known[name].comes_as} at {name}" for name in asked)


def _words_of(text: str) -> set[str]:
    return {word.strip(".,:;()") for word in text.split()}
