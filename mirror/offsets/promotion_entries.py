"""What a link's state keeps of links that go back."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BackPromotion:
    """`link`, which mirrors back, stands promoted by this operation, or is about to be; in the part of the first unit.

    Written by a session of the state's own link, or by the command that promotes the one back, as nobody's producer.
    """

    link: str
    operation_id: str
