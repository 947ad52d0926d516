"""Who leads, by command and by itself: elections that clients ask for, and first replicas that lead again."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass

from broker.base.clock import Clock
from broker.controller.errors import ElectionRefused, ReignOver
from broker.controller.queues import Answer
from broker.controller.reign import Reign
from broker.controller.requests import Outcomes
from broker.controller.topics import all_done
from broker.errors import BrokerError
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import TopicPartition

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LeaderBalance:
    """So often the controller looks who leads, and so many of a broker's own partitions may be led by others."""

    check_interval_s: float
    imbalance_max_percent: float


async def elect_leaders(
    reign: Reign, wheres: Collection[TopicPartition] | None, timeout_ms: int, *, unclean: bool
) -> Outcomes:
    """See ControllerRequests.elect_leaders."""
    async with reign.turn:
        asked = reign.cluster.elected() if wheres is None else wheres
        outcomes, answers = await _elected(reign, asked, unclean=unclean)
    await all_done(answers, timeout_ms, "leaders are elected, and not known to every broker")
    if wheres is not None:
        return outcomes
    return {where: error for where, error in outcomes.items() if not _is_needless(error)}


async def keep_balanced(reign: Reign, balance: LeaderBalance, clock: Clock) -> None:
    """Ends only by raising ReignOver."""
    while True:
        await clock.sleep(balance.check_interval_s)
        try:
            async with reign.turn_to_write():
                await _elected(reign, reign.cluster.imbalanced(balance.imbalance_max_percent), unclean=False)
        except ReignOver:
            raise
        except BrokerError as error:
            log.warning("first replicas were not made leaders again: %s", error)


async def _elected(
    reign: Reign, wheres: Collection[TopicPartition], *, unclean: bool
) -> tuple[dict[TopicPartition, BrokerError | None], list[Answer]]:
    """Whoever calls has the reign's turn. Where leaders change the ISR meanwhile, it is decided again."""
    outcomes: dict[TopicPartition, BrokerError | None] = {}
    changed: set[TopicPartition] = set()
    left: Collection[TopicPartition] = wheres
    while left:
        wanted, refused = reign.cluster.asked_elections(left, unclean=unclean)
        outcomes |= {where: ElectionRefused(code.description, error_code=code) for where, code in refused.items()}
        if wanted:
            changed |= await reign.write(wanted)
        done, left = reign.cluster.standing(wanted)
        outcomes |= dict.fromkeys(done)
        outcomes |= {where: ElectionRefused(f"{where} cannot be written") for where in wanted.keys() - done - left}
    return outcomes, reign.announce(changed)


def _is_needless(error: BrokerError | None) -> bool:
    return error is not None and error.error_code is ErrorCode.ELECTION_NOT_NEEDED
