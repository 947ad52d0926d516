"""The ways that markers take from one broker to another.

What a connection left behind when it broke may be carried out long after: the other broker has read it and not come to
it yet. A marker that comes so late would end the next transaction of its producer. So a connection for markers says who
sends, which of his connections it is, and to which life of the receiver; a receiver that has carried out something of a
later one, or has another life, refuses it. It is said by the client id, which each request has.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from broker.coordination.internal_log import NotCoordinator

PREFIX: Final = "markers"


class Channel(NamedTuple):
    """`number` rises with each connection of one life (`sender_epoch`) of the sender."""

    sender: int
    sender_epoch: int
    number: int
    receiver_epoch: int

    @property
    def client_id(self) -> str:
        return ".".join([PREFIX, *map(str, self)])

    @classmethod
    def of(cls, client_id: str | None) -> Channel | None:
        """None: it is no such connection."""
        prefix, *numbers = (client_id or "").split(".")
        if prefix != PREFIX or len(numbers) != len(cls._fields):
            return None
        try:
            return cls(*map(int, numbers))
        except ValueError:
            return None


class ReceivedChannels:
    """Of one broker, over its life."""

    def __init__(self) -> None:
        self._newest: dict[int, Channel] = {}

    def check(self, channel: Channel, own_epoch: int) -> None:
        """Before what came by it is carried out. Raises NotCoordinator."""
        newest = self._newest.get(channel.sender, channel)
        if channel.receiver_epoch != own_epoch or channel[:3] < newest[:3]:
            raise NotCoordinator(
                f"broker {channel.sender} sent markers by connection {channel.number}, to this broker with epoch "
                f"{channel.receiver_epoch}; it has epoch {own_epoch} and heard of connection {newest.number}"
            )
        self._newest[channel.sender] = channel
