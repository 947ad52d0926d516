"""The ways that orders take from the controller to another broker.

What a connection left behind when it broke may arrive long after it, where the network was cut and is whole again. An
order that says all that a broker is to have would then have removed what was made since, and one to make partitions
those of a later topic of that name. So a connection says by its client id, which each request has, what it is for and
which of its controller's it is; who has carried out something of a later one refuses it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from broker.errors import BrokerError
from broker.wire.errors import ErrorCode

PREFIX: Final = "orders"


class OvertakenOrder(BrokerError):
    """The order came by a connection that its controller has given up."""

    error_code = ErrorCode.NETWORK_EXCEPTION
    retriable = True
    hint = "nothing is to be done: the order was given again by a later connection"


class OrderWay(NamedTuple):
    """`number` rises with each connection that one process opens for orders, to whomever and for whatever purpose."""

    purpose: str
    number: int

    @property
    def client_id(self) -> str:
        return f"{PREFIX}.{self.purpose}.{self.number}"

    @classmethod
    def of(cls, client_id: str | None) -> OrderWay | None:
        """None: it is no such connection."""
        prefix, _, rest = (client_id or "").partition(".")
        purpose, _, number = rest.partition(".")
        return cls(purpose, int(number)) if prefix == PREFIX and number.isdecimal() else None


class OrderWays:
    """Those that a broker has been ordered by."""

    def __init__(self) -> None:
        self._newest: dict[str, tuple[int, int]] = {}
        """By purpose: the controller's epoch and the number of the connection."""

    def check(self, way: OrderWay, controller_epoch: int) -> None:
        """Before what came by it is carried out; what a deposed controller orders is left for others to refuse. Raises
        OvertakenOrder.
        """
        epoch, number = self._newest.get(way.purpose, (controller_epoch, way.number))
        if controller_epoch == epoch and way.number < number:
            raise OvertakenOrder(f"an order came by connection {way.number}, and one by connection {number} before it")
        if controller_epoch >= epoch:
            self._newest[way.purpose] = (controller_epoch, way.number)
