"""Commands of the operator's own, run before and after a move where the cluster itself cannot refuse writes."""

from __future__ import annotations

import os
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Final

from broker.base.children import start_child, stop_group
from broker.base.documents import Program
from broker.base.time_limits import timeout
from failover.errors import HookFailed
from failover.limits import HOOK_END_S, HOOK_OUTPUT_CHARACTERS, HOOK_S
from failover.running.steps import Operation
from mirror.api import Link


@dataclass(frozen=True, slots=True)
class Hooks:
    """Programs with their arguments, no shell: `freeze` keeps the source's clients from writing, `thaw` undoes that.

    `before` runs before anything is changed, and refuses by its exit code; `after` once it is known how the move ended.
    """

    freeze: tuple[str, ...] = ()
    thaw: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for field in fields(self):
            object.__setattr__(self, field.name, Program(getattr(self, field.name)))

    @property
    def is_never_undone(self) -> bool:
        """Whether a move that is given up would leave clients kept from writing."""
        return bool(self.freeze) and not self.thaw

    def of_step(self) -> Hooks:
        """Of a move that is a step of a failback, which has asked `before` when it began."""
        return replace(self, before=())


def hook_environment(operation_id: str, operation: Operation, ends: Link, links: str) -> dict[str, str]:
    """What a hook is told. `ends`: a link of the move, whose source the clients leave for its target; `links`: the
    names of all that go.
    """
    source, target = ends.source, ends.target
    return {
        "FARSHORE_OPERATION": operation_id,
        "FARSHORE_VERB": operation.value,
        "FARSHORE_LINK": links,
        "FARSHORE_SOURCE": source.name,
        "FARSHORE_SOURCE_BOOTSTRAP_SERVERS": source.bootstrap_servers,
        "FARSHORE_TARGET": target.name,
        "FARSHORE_TARGET_BOOTSTRAP_SERVERS": target.bootstrap_servers,
        "FARSHORE_VERIFIED": "",
    }


NO_HOOKS: Final = Hooks()
NO_THAW_HOOK: Final = (
    "its freeze_hook was run, and this machine's file has no thaw_hook: what undoes it is to be done by hand"
)


async def run_hook(name: str, command: tuple[str, ...], told: Mapping[str, str]) -> None:
    """Returns when it ended with 0. `told` is what its environment says of the operation. Raises HookFailed."""
    try:
        child = await start_child(command, stdout=PIPE, stderr=STDOUT, environment={**os.environ, **told})
    except OSError as error:
        raise HookFailed(name, f"cannot be started: {error}") from error
    try:
        async with timeout(HOOK_S):
            output, _ = await child.communicate()
    except TimeoutError as error:
        raise HookFailed(name, f"had not ended after {HOOK_S:.0f} s") from error
    finally:
        await stop_group(child, HOOK_END_S)
    if child.returncode:
        said = output.decode("utf-8", "replace").strip()[-HOOK_OUTPUT_CHARACTERS:]
        raise HookFailed(name, f"ended with exit code {child.returncode}: {said or 'it said nothing'}")
