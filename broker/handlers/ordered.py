"""What the answers to a controller's orders have in common."""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import NamedTuple, TypeVar

from broker.errors import BrokerError
from broker.wire.errors import ErrorCode

log = logging.getLogger(__name__)
T = TypeVar("T")


class Refused(NamedTuple):
    code: ErrorCode
    text: str


async def carried_out(work: Awaitable[T]) -> T | Refused:
    try:
        return await work
    except BrokerError as error:
        return Refused(error.error_code, str(error))
    except Exception as error:  # closing the connection would have the controller send the same for ever
        log.exception("an order of the controller failed")
        return Refused(ErrorCode.UNKNOWN_SERVER_ERROR, repr(error))
