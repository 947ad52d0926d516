"""What was found for a move, of one link and of a site's, and how it is shown, refused and asked about."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from broker.base.documents import to_document
from deploy.cli import failover_tables as link_tables
from deploy.cli import site_tables
from deploy.cli.refusals import Ending
from deploy.cli.terminal import Output
from deploy.cli.undecided import tell_undecided
from failover.planning.gates import GateRefusal
from failover.planning.intent import Intent
from failover.planning.plan import OperationPlan
from failover.planning.site_plan import SitePlan
from failover.planning.undecided import Undecided
from failover.running.link_run import LinkMove


@dataclass(frozen=True, slots=True)
class Looked(ABC):
    """What was found, and how it is shown: `moves` are the links that go, of all that were `looked_at`, and `intent` is
    what is carried out.
    """

    moves: Sequence[LinkMove]
    looked_at: Sequence[LinkMove]
    intent: Intent

    @property
    @abstractmethod
    def name(self) -> str:
        """Of what is moved, for the operation's id."""

    @property
    @abstractmethod
    def extra(self) -> dict[str, Any]:
        """What is noted in the journal beside the plans."""

    @property
    @abstractmethod
    def refusals(self) -> Sequence[GateRefusal]:
        """Of all that was asked for together."""

    @property
    @abstractmethod
    def is_refused(self) -> bool:
        """Wholly or in part."""

    @abstractmethod
    def refused_by(self, refusals: Sequence[GateRefusal]) -> Looked:
        """The same, and these say no to all of it."""

    @abstractmethod
    def with_undecided(self, undecided: tuple[Undecided, ...] | None) -> Looked:
        """The same, and its plan says that."""

    @abstractmethod
    def print_only(self, output: str) -> None: ...

    @abstractmethod
    def show(self) -> None:
        """Before the question."""

    @abstractmethod
    def refuse(self, output: str) -> None:
        """Raises GateRefused where nothing can be moved."""

    @abstractmethod
    def ask(self, yes: bool, output: str) -> None: ...

    @abstractmethod
    def tell_refused(self, output: str, error: Ending, refusals: Sequence[GateRefusal]) -> None: ...


@dataclass(frozen=True, slots=True)
class LookedAtLink(Looked):
    @property
    def plan(self) -> OperationPlan:
        return self.moves[0].plan

    @property
    def name(self) -> str:
        return self.intent.links[0]

    @property
    def extra(self) -> dict[str, Any]:
        return {}

    @property
    def refusals(self) -> Sequence[GateRefusal]:
        return self.plan.refusals

    @property
    def is_refused(self) -> bool:
        return bool(self.plan.refusals)

    def refused_by(self, refusals: Sequence[GateRefusal]) -> LookedAtLink:
        plan = replace(self.plan, refusals=(*self.plan.refusals, *refusals))
        return replace(self, moves=[replace(self.moves[0], plan=plan)])

    def with_undecided(self, undecided: tuple[Undecided, ...] | None) -> LookedAtLink:
        return replace(self, moves=[replace(self.moves[0], plan=replace(self.plan, undecided=undecided))])

    def print_only(self, output: str) -> None:
        link_tables.print_plan(self.plan, output)
        if output == Output.TABLE:
            tell_undecided(self.plan.undecided or (), to_stderr=False)

    def show(self) -> None:
        link_tables.show_plan(self.plan)
        tell_undecided(self.plan.undecided or (), to_stderr=True)

    def refuse(self, output: str) -> None:
        link_tables.refuse(self.plan, output)

    def ask(self, yes: bool, output: str) -> None:
        link_tables.ask(self.plan, yes, output)

    def tell_refused(self, output: str, error: Ending, refusals: Sequence[GateRefusal]) -> None:
        link_tables.tell_refused(self.plan, output, error, *refusals)


@dataclass(frozen=True, slots=True)
class LookedAtSite(Looked):
    plan: SitePlan

    @property
    def name(self) -> str:
        return f"{self.intent.source}-{self.intent.target}"

    @property
    def extra(self) -> dict[str, Any]:
        return {"stays": to_document(self.plan.stays), "staying_links": to_document(self.plan.staying)}

    @property
    def refusals(self) -> Sequence[GateRefusal]:
        return self.plan.refusals

    @property
    def is_refused(self) -> bool:
        return bool(self.plan.refusals or self.plan.refused)

    def refused_by(self, refusals: Sequence[GateRefusal]) -> LookedAtSite:
        plan = replace(self.plan, moving=(), refusals=(*self.plan.refusals, *refusals))
        return replace(self, moves=[], plan=plan)

    def with_undecided(self, undecided: tuple[Undecided, ...] | None) -> LookedAtSite:
        return replace(self, plan=replace(self.plan, undecided=undecided))

    def print_only(self, output: str) -> None:
        site_tables.print_plan(self.plan, output)
        if output == Output.TABLE:
            tell_undecided(self.plan.undecided or (), to_stderr=False)

    def show(self) -> None:
        site_tables.show_plan(self.plan)
        tell_undecided(self.plan.undecided or (), to_stderr=True)
        site_tables.tell_stopped(self.plan)

    def refuse(self, output: str) -> None:
        site_tables.refuse(self.plan, output)

    def ask(self, yes: bool, output: str) -> None:
        site_tables.ask(self.plan, yes, output)

    def tell_refused(self, output: str, error: Ending, refusals: Sequence[GateRefusal]) -> None:
        site_tables.tell_refused(self.plan, output, error, *refusals)
