"""What a connection that cannot go on ends by."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from broker.errors import BrokerError
from broker.wire.errors import WireError

log = logging.getLogger(__name__)


class Abortable(Protocol):
    @property
    def host(self) -> str: ...
    def abort(self, reason: str) -> None: ...


@contextmanager
def ended_by_errors(connection: Abortable) -> Iterator[None]:
    try:
        yield
    except (WireError, BrokerError) as error:
        connection.abort(str(error))
    except Exception:  # one request that we cannot handle must not stop the broker: close and tell
        log.exception("a request of %s failed; its connection is closed", connection.host)
        connection.abort("internal error")
