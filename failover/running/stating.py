"""The statement of what is lost, as of when the source was asked for it, before anybody is told how a move ended."""

from __future__ import annotations

from collections.abc import Iterable

from broker.base.errors import FarshoreError
from failover.losses.stated_losses import losses_by_now, stated_losses
from failover.running.link_run import LinkRun
from failover.running.steps import Operation, OperationStep


async def state_losses(links: Iterable[LinkRun]) -> None:
    """Of the links that have not failed. One of which it cannot be stated fails, and raises where it was the last."""
    live = [link for link in links if link.failure is None]
    for link in live:
        stating = losses_by_now if link.plan.operation is Operation.FAILOVER else stated_losses
        asked_at_ms = link.sites.now_ms()
        try:
            losses = await stating(link.sites, link.snapshot)
        except FarshoreError as error:
            link.fail(OperationStep.VERIFY, error)
            if all(one.failure is not None for one in live):
                raise
        else:
            link.losses, link.stated_at_ms = losses, asked_at_ms
