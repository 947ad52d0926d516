"""How one run of an operation begins, as a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from failover.journal.values import Event
from failover.planning.staying import StayingLink
from failover.running.result import OperationResult
from mirror.api import Link


@dataclass(frozen=True, slots=True)
class UntoldLink:
    """A link that an earlier run may have promoted, and that this one goes without, as it cannot be looked at: it stays
    closed at its source, and the operation open. `result`: with that as its failure.
    """

    link: Link
    result: OperationResult


@dataclass(frozen=True, slots=True)
class Opening:
    """The first entry of a run: what was planned, or who takes it up. `given_up`: links that it goes on without, and
    why. `is_freeze_begun`: by an earlier run, so that it is this one's to undo. `staying`: all links that it goes
    without, when it begins.
    """

    event: Event
    detail: Mapping[str, Any]
    given_up: Mapping[str, str] = field(default_factory=dict)
    is_freeze_begun: bool = False
    staying: tuple[StayingLink, ...] = ()
    groups_away: tuple[str, ...] = ()
    """That read along a link which is still to come back, too."""
    late_denials: tuple[str, ...] = ()
    """Topics whose denials an earlier run may have asked for that come yet."""
    is_whole_site: bool = False
    """The role of all topics is moved: until the fence all its links go, or none."""
    left: tuple[Link, ...] = ()
    """Those of `staying` that began with it."""
    is_freeze_hook_run: bool = False
    """By an earlier run, as `is_freeze_begun`."""
    untold: tuple[UntoldLink, ...] = ()
    hook_error: str = ""
    """Why the after_hook will not run that was planned."""
