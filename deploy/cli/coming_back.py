"""What the failback of one link takes, be it alone or among a site's: the look, the operation, and its end."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from broker.base.documents import to_document
from broker.client.cluster import Cluster
from deploy.cli.both_sites import with_both_sites
from deploy.cli.failback_end import go_on, tell_end
from deploy.cli.failback_words import steps_at_end
from deploy.cli.moving import now_ms
from deploy.cli.next_steps import closed_at_both, closed_for_third, hook_by_hand
from deploy.cli.stranded import no_answer
from deploy.cli.terminal import AppContext, CommandRefused, ExitCode, run_async
from deploy.cli.waits import tell_watch, told_calls
from deploy.cli.way_back import Coming, is_taken_up, standing_still
from failover.failback.export import holds_other
from failover.failback.looking import look_back
from failover.failback.operation import (
    Beginning,
    check_hooks_of,
    check_links_of,
    first_entry,
    noted_folder,
    open_failback,
    refuse_moves_back,
)
from failover.failback.plan import FailbackPlan, FailbackStep
from failover.journal.values import OperationLog
from failover.observing.readers import Journals, Readers
from failover.observing.sites import Sites
from failover.planning.intent import Intent
from failover.planning.links import this_process
from failover.planning.staying import NONE_AWAY, Away
from failover.running.result import HOOK_ERROR
from mirror.api import Link


def folder_of(app: AppContext, link: Link) -> Path:
    """Where what only the lost site has is saved, if nobody says where."""
    return app.state_dir / "stranded" / f"{link.name}-{datetime.now(UTC):%Y%m%dT%H%M%S}"


def refuse_other_files(folder: Path | None) -> None:
    """Raises CommandRefused where the folder has something else than an export."""
    if folder is not None and holds_other(folder):
        text = f"--export-to {folder} is not empty, and is no export"
        raise CommandRefused(f"{text}; nothing was changed", "name a folder that is not there yet", ExitCode.USAGE)


def _nearest(folder: Path) -> Path:
    """The first of those above it that is there."""
    return next(parent for parent in folder.parents if parent.exists())


def shown_folder(plan: FailbackPlan | None, folder: Path | None) -> Path | None:
    """Where a plan that somebody was shown saves to, and the `folder` that was asked for where it saves nothing."""
    return Path(plan.export_to) if plan is not None and plan.export_to else folder


async def look_at_one(
    app: AppContext, link: Link, folder: Path | None, operation_id: str | None, *, alone: bool = True
) -> tuple[FailbackPlan, OperationLog | None]:
    """As `look_at`; where that takes long, whom it waits for is told."""
    async with told_calls(link.source.name, link.target.name):
        return await look_at(app, link, folder, operation_id, alone=alone)


async def look_at(
    app: AppContext,
    link: Link,
    folder: Path | None,
    operation_id: str | None,
    *,
    alone: bool = True,
    journals: Journals | None = None,
) -> tuple[FailbackPlan, OperationLog | None]:
    """-> the plan, and the failback that it goes on with. `folder`: None is where that was to save to, where nothing is
    there yet and this machine may, or else a new one of the `state_dir`. `alone`: refused where another operation has
    not ended. `journals`: of who looks at several links. Raises OtherFile.
    """
    known = journals if journals is not None else {}

    async def look(source: Cluster | None, target: Cluster) -> tuple[FailbackPlan, OperationLog | None]:
        if source is None:
            raise no_answer(link)
        readers = Readers.among(known, link.target.name)
        sites = Sites(link, source, target, (), now_ms, readers=readers, tell_watch=tell_watch)
        log = await open_failback(sites) if alone else None
        if operation_id and (log is None or log.operation_id != operation_id):
            text = f"{operation_id} is not what keeps link {link.name} by now"
            raise CommandRefused(text, f"`farshore operation show {operation_id}`", ExitCode.REFUSED)
        if log is not None:
            check_links_of(log, app.links())
            check_hooks_of(log, app.hooks())
        own_id = log.operation_id if log is not None else ""
        noted = noted_folder(log) if log is not None else ""
        is_free = bool(noted) and not Path(noted).exists() and os.access(_nearest(Path(noted)), os.W_OK)
        saves_to = str(folder or (noted if is_free else folder_of(app, link)))
        plan = await look_back(link, app.links(), (source, target), saves_to, own_id, known)
        if alone and plan.link_back:
            await refuse_moves_back(sites, app.link(plan.link_back), own_id)
        return plan, log

    return await with_both_sites(link, look)


def coming_back(
    app: AppContext,
    link: Link,
    plan: FailbackPlan,
    log: OperationLog | None,
    intent: Intent,
    away: Away = NONE_AWAY,
) -> Coming:
    """The operation that carries the plan out, or goes on with that of the `log`. `away`: what is not back yet when
    this one is.
    """
    own_id = log.operation_id if log is not None else f"failback-{link.name}-{datetime.now(UTC):%Y%m%dT%H%M%S%f}"
    who = this_process()
    detail = first_entry(intent.document(), who, plan.link_back, to_document(plan), away, app.hooks())
    return Coming(app, link, plan, Beginning(own_id, who, detail, log), intent.drain_timeout_s)


def told_end(app: AppContext, link: Link, plan: FailbackPlan, coming: Coming) -> tuple[int, dict[str, Any]]:
    """Of one that came to its end: what is left to be seen to is said -> the exit code, and the document."""
    result = coming.result()
    if FailbackStep.RESUME in coming.came_back.steps_done or not plan.steps:
        is_run = run_async(is_taken_up(link))
        stands = run_async(standing_still(link, is_run=is_run))
        back = app.link(plan.link_back) if plan.link_back else None
        paused, away = plan.stays_paused, coming.away
        steps = steps_at_end(link, stands, back, is_run=is_run, stays_paused=paused, away=away)
        result |= {"link_is_run": is_run, "stands_still": stands, "next": steps}
    else:
        result["next"] = (go_on(link),)
    if result.get("switchover", {}).get(HOOK_ERROR):
        result["next"] = (hook_by_hand(link.source.name), *result["next"])
    at_both = closed_at_both(result["closed_at_both"], link.source.name, link.target.name)
    for_third = closed_for_third(result["closed_for_third"], link.source.name)
    result["next"] = (*result["next"], *at_both, *for_third)
    return tell_end(link, plan, result), result
