"""The statement of what is lost, as of when the source was asked for it, while clients are turned to the target."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from broker.base.errors import FarshoreError
from broker.client.fanout import side_by_side
from failover.limits import STATED_BEFORE_HOOK_S, STATED_S
from failover.losses.stated_losses import losses_at_least, losses_by_now, stated_losses
from failover.running.link_run import LinkRun
from failover.running.steps import Operation


class Stating:
    """Goes on beside the after_hook, which may be what turns clients to the target: it waits a moment for a source that
    answers, and the program may close that, and for none that hangs.
    """

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    async def begin(self, links: Iterable[LinkRun]) -> None:
        """Returns when all is stated, and after STATED_BEFORE_HOOK_S at the latest."""
        self._task = asyncio.create_task(state_losses(links))
        await asyncio.wait([self._task], timeout=STATED_BEFORE_HOOK_S)

    async def end(self) -> None:
        if self._task is not None:
            await self._task

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()


async def state_losses(links: Iterable[LinkRun]) -> None:
    """Of the links that have not failed, within STATED_S. What cannot be told of one that is moved and verified is no
    failure of it: its loss is a lower bound then.
    """
    until_s = asyncio.get_running_loop().time() + STATED_S
    await side_by_side(_state(link, until_s) for link in links if link.failure is None)


async def _state(link: LinkRun, until_s: float) -> None:
    stating = losses_by_now if link.plan.operation is Operation.FAILOVER else stated_losses
    link.stated_at_ms = link.sites.now_ms()
    try:
        link.losses = await stating(link.sites, link.snapshot, until_s)
    except FarshoreError:
        link.losses = losses_at_least(link.snapshot)
