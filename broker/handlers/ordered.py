"""What the answers to a controller's orders have in common."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

from broker.broker import Broker
from broker.cluster.order_ways import OrderWay
from broker.errors import BrokerError
from broker.handlers.handler import RequestContext
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import AclOperation, AclResource

log = logging.getLogger(__name__)
T = TypeVar("T")


class Refused(NamedTuple):
    code: ErrorCode
    text: str


async def carried_out(
    broker: Broker, context: RequestContext, controller_epoch: int, carry_out: Callable[[], Awaitable[T]]
) -> T | Refused:
    try:
        context.rights.require(AclOperation.CLUSTER_ACTION, AclResource.CLUSTER)
        if (way := OrderWay.of(context.client_id)) is not None:
            broker.order_ways.check(way, controller_epoch)
        return await carry_out()
    except BrokerError as error:
        return Refused(error.error_code, str(error))
    except Exception as error:  # closing the connection would have the controller send the same for ever
        log.exception("an order of the controller failed")
        return Refused(ErrorCode.UNKNOWN_SERVER_ERROR, repr(error))
