"""What can go wrong while moving applications to another site.

FailoverError
├── GateRefused        a safety gate said no; nothing was changed (exit 3)
│   ├── NotDrained     the source is still written to, or the mirror is behind
│   │   ├── TransactionOpen   or transactions are open there, which nobody may be writing in
│   │   └── OffsetsPending    or hold offsets of groups
│   ├── NotMovable     also after the drain it is not known where a group goes on
│   ├── ReadsMore      the source lost offsets of groups: they would read again what the plan did not say
│   ├── SkipsMore      groups went on at the target, or it lost records: they would skip what the plan did not say
│   ├── GroupsRead     after the drain groups still read at the source
│   ├── WholeSiteCut   one link of a whole site does not go, so none does (`running/whole_site.py`)
│   ├── HookFailed     a hook of the operator's own did not do its part
│   ├── FreezeNotAllowed   the site's ACLs are not farshore's to change
│   │   └── LockedOut      the freeze would keep the mirror from writing, too
│   ├── StrandedUnknown   a transaction is open in what only the source has
│   │   └── TailEndUnknown    nobody can say where that ends
│   ├── BackTailUndecided the link back would bring what nobody decided about
│   ├── SwitchoverOpen    a failback is not aborted before the switchover among its steps
│   ├── ExportRefused  the folder is not empty, or the source's log changes
│   ├── ReplayRefused  the records may come, or are there, in another way
│   ├── OperationUnderWay   somebody else moves this link
│   │   └── Overtaken         and began at the same time
│   ├── OperationEnded      there is nothing to go on with
│   ├── OtherFile           it was begun with a file that selects something else
│   ├── PromotedMeanwhile   an abort that was to let the source go on found its link promoted
│   └── WorldChanged        since the plan was written, what it was made from changed
│       └── SourceHeard     a source was found dead, and answered before the fence (`observing/held_silence.py`)
├── NotClosed          ACLs were asked for, and it is not known that they close the site (exit 1)
├── StillFrozen        given up before anything was moved, and writes at the source could not be let in again (exit 1)
│   └── DenialsMayCome     or they were, and ACLs that deny them may come yet
├── NotAborted         whether the operation is behind its fence is not known: the source stays as it is (exit 1)
├── OperationTakenUp       another machine carries this operation on (exit 1)
├── JournalUnanswered      nobody could be told for too long that the operation is carried on (exit 1)
├── CutShort           something failed behind the gates, and may be moved in part; the operation is resumed (exit 1)
├── TakenOver          another command took a link over behind this operation's fence
├── FenceShrank        a worker did, and the fence anew leaves out what the first one had
├── ExportDamaged      files of stranded records are not as they were written
├── PlanUnreadable         a file that is no plan, or was edited
├── NewerVersion           a newer version of farshore wrote it
└── JournalDamaged     the operations journal does not match its own hashes
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence

from broker.base.errors import FarshoreError
from broker.client.site import Site
from broker.wire.vocabulary import TopicPartition
from failover.observing.transaction_ends import how_they_end, told_starts


class FailoverError(FarshoreError):
    """Root of this folder's errors."""


class GateRefused(FailoverError):
    """A safety gate refused the operation before anything was changed."""


class NotDrained(GateRefused):
    """The mirror did not reach the source's end in time; nothing was changed."""

    retriable = True


class TransactionOpen(NotDrained):
    """Transactions hold up the mirror (`starts`: by partition the offset that one begins at); nothing was changed."""

    def __init__(
        self, site: Site, starts: Mapping[TopicPartition, int], timeout_s: float, *, is_first: bool = True
    ) -> None:
        """Not `is_first`: steps before this one have changed something."""
        super().__init__(
            f"transactions were left open at {site.name} while it was drained, for {timeout_s:.0f} s: "
            f"{told_starts(starts)}; what is behind there is not mirrored until they end"
            f"{'; nothing was changed' if is_first else ''}",
            hint=how_they_end(site, starts),
        )


class OffsetsPending(NotDrained):
    """Transactions that have not ended commit offsets of these groups; nothing was changed."""

    def __init__(self, site: str, groups: Sequence[str], timeout_s: float) -> None:
        self.groups = tuple(groups)
        super().__init__(
            f"after {timeout_s:.0f} s offsets of {', '.join(groups)} were still in transactions at {site} that have "
            "not ended, so that where these groups go on is not known; nothing was changed",
            hint="each ends by its own time-out (transaction.timeout.ms) at the latest: stop the applications that "
            "read with these groups so that they end theirs, or wait, and try again; `kafka-transactions.sh list` says "
            "whose are ongoing",
        )


class SkipsMore(GateRefused):
    """With everything mirrored, groups stand further on at the target than the plan said, or before what it still has;
    nothing was changed.
    """

    def __init__(self, places: Mapping[str, int | None], target: str) -> None:
        """`places`: group and partition, in words -> how many records it would skip; None: nobody knows."""
        self.groups = tuple(sorted({place.split(" on ")[0] for place in places}))
        counts = {place: "unknown" if n is None else f"at most {n}" for place, n in places.items()}
        told = ", ".join(f"{place} ({count})" for place, count in counts.items())
        super().__init__(
            f"since the plan was made groups went on at {target}, it lost what they read next, or the mirror came to "
            f"where they are, so that more records would be skipped than it said: {told}; nothing was changed",
            hint="see that nothing reads there as these groups; then again, with a plan that says so, or with "
            "--set-back GROUP",
        )


class ReadsMore(GateRefused):
    """With everything mirrored, the source has lost where groups are, and they would go on behind where the plan said;
    nothing was changed.
    """

    def __init__(self, places: Mapping[str, int], source: str) -> None:
        """`places`: group and partition, in words -> how many records it would read again."""
        self.groups = tuple(sorted({place.split(" on ")[0] for place in places}))
        told = ", ".join(f"{place} (at most {records})" for place, records in places.items())
        super().__init__(
            f"since the plan was made {source} has lost offsets of groups (deleted, or expired), so that records would "
            f"be read again: {told}; nothing was changed",
            hint="commit them there again, as the plan has them; or look again with --dry-run, with what is left",
        )


class NotMovable(GateRefused):
    """With everything mirrored, it is still not known where these groups go on; nothing was changed."""

    def __init__(self, groups: Sequence[str]) -> None:
        self.groups = tuple(groups)
        super().__init__(
            f"it is not known where {', '.join(groups)} would go on at the target; nothing was changed",
            hint=f"to go on, and leave what is unknown of them as it is there: {leave_options(groups)}",
        )


class GroupsRead(GateRefused):
    """After the drain these groups read at the source, or that cannot be told; nothing was changed. `site`: that one,
    by name.
    """

    retriable = True

    def __init__(self, groups: Sequence[str], site: str) -> None:
        self.groups = tuple(groups)
        super().__init__(
            f"after the drain {', '.join(groups)} still read at {site}, or it cannot be told; nothing was changed",
            hint="stop their consumers, then try again",
        )


class HookFailed(GateRefused):
    """A hook did not end with 0: whether clients are kept from writing is not known, and nothing was moved."""

    def __init__(self, name: str, problem: str) -> None:
        self.problem = problem
        super().__init__(
            f"the {name} {problem}; nothing was changed",
            hint="run it by hand, or see [failover] in farshore.toml",
        )


class FreezeNotAllowed(GateRefused):
    """A site that is to be frozen by ACLs has none, or does not let farshore see or make them."""


class LockedOut(FreezeNotAllowed):
    """The ACLs of the freeze keep farshore itself from writing: they are taken back, and nothing was changed."""


class NotClosed(FailoverError):
    """ACLs that close a site were asked for, and it is not known that they do: all or some of them may be there, or
    may come yet.
    """

    retriable = True


class StillFrozen(FailoverError):
    """The operation was given up before it moved anything, and clients of the source may still be kept from writing."""


class DenialsMayCome(StillFrozen):
    """What was there of the freeze is undone; ACLs that were asked for, and not answered, may deny writes yet."""


def leave_options(groups: Iterable[str]) -> str:
    """The options that consent to leaving these groups behind."""
    return " ".join(f"--leave-group {shlex.quote(group)}" for group in groups)


def leave_partition_options(places: Iterable[str]) -> str:
    """The options that consent to leaving these partitions as they are."""
    return " ".join(f"--leave-partition {shlex.quote(place)}" for place in places)


class OperationUnderWay(GateRefused):
    """Somebody else moves this link, or has moved it since the plan was made; nothing was changed. `subject`: the links
    or the site that are not free; `operation_id`: who has them, "" where nothing says it.
    """

    retriable = True

    def __init__(self, message: str, hint: str | None = None, *, subject: str = "", operation_id: str = "") -> None:
        super().__init__(message, hint)
        self.subject = subject
        self.operation_id = operation_id


class Overtaken(OperationUnderWay):
    """Of two that began at once between these sites the other goes on; who that is, nothing says yet."""

    def __init__(self, source: str, target: str) -> None:
        text = f"somebody else begins an operation from {source} to {target}, or takes one up, just now"
        hint = "`farshore operation list` says who"
        super().__init__(f"{text}; nothing was changed", hint, subject=f"{source}-{target}")


class StrandedUnknown(GateRefused):
    """What of an open transaction will be records is not known yet; nothing was changed."""

    retriable = True
    hint = "it ends by its own time-out (transaction.timeout.ms) at the latest: try again then"


class TailEndUnknown(StrandedUnknown):
    """Behind the stranded records stand new ones of a site that is active again, and nothing parts them."""

    retriable = False
    hint = "read both logs; then farshore link resume --stranded append brings all of it to the target"


class BackTailUndecided(GateRefused):
    """The link back is not let run: it would bring what its source alone has behind newer records."""

    def __init__(self, back: str, source: str) -> None:
        super().__init__(
            f"{source} alone has records that link {back} would bring behind newer ones; it stays promoted",
            hint=f"see them: farshore stranded list --link {back}",
        )


class SwitchoverOpen(GateRefused):
    """A failback was not aborted: the switchover among its steps has not ended."""

    def __init__(self, operation_id: str, switchover: str) -> None:
        super().__init__(
            f"{operation_id} was not aborted: {switchover}, which is a step of it, has not ended",
            hint=f"`farshore operation abort {switchover}` gives that up first; `farshore operation resume "
            f"{operation_id}` brings both to their end",
        )
        self.switchover = switchover


class ExportRefused(GateRefused):
    """Stranded records were not exported; what is in the folder is as it was."""


class ReplayRefused(GateRefused):
    """Stranded records were not replayed: nothing was appended."""


class ExportDamaged(FailoverError):
    """An export's manifest or files are missing, or are not as they were written."""

    hint = "copy the export again from where it was whole; the source's log has the records as long as it keeps them"


class OperationEnded(GateRefused):
    """The operation has ended: it is neither gone on with nor aborted."""


class OtherFile(GateRefused):
    """The file of who takes an operation up selects something else than was consented to (`parts`: as it was begun, and
    as it is here; empty: it has no such link); nothing more was changed.
    """

    def __init__(self, operation_id: str, link: str, parts: Mapping[str, tuple[object, object]]) -> None:
        told = "; ".join(f"{name} = {json.dumps(was)}, here {json.dumps(now)}" for name, (was, now) in parts.items())
        told = f"declares {link} otherwise: {told}" if parts else f"has the link {link}, which this one has not"
        super().__init__(
            f"{operation_id} was begun with a file that {told}; nothing more was changed",
            hint=f"take that file, or set it so in this one; or `farshore operation abort {operation_id}`",
        )


class PromotedMeanwhile(GateRefused):
    """A promotion that the operation had asked for was heard since its abort was looked at; nothing was thawed."""

    def __init__(self, operation_id: str, links: Sequence[str], source: str) -> None:
        super().__init__(
            f"{operation_id} was not aborted: since that was looked at it has promoted {', '.join(links)}; "
            f"{source} stays as it is, and nothing was let in there",
            hint=f"`farshore operation resume {operation_id}` brings it to its end; `farshore operation abort "
            f"{operation_id}`, given again, ends it there, and leaves what is moved",
        )


class NotAborted(FailoverError):
    """What the operation has promoted could not be told for certain, or the journal did not take its end: it can be
    aborted, or resumed, still.
    """

    retriable = True

    def __init__(self, operation_id: str, why: str, target: str) -> None:
        super().__init__(
            f"{operation_id} was not aborted: {why}",
            hint=f"when {target} answers, from any machine: `farshore operation abort {operation_id}`, or "
            f"`farshore operation resume {operation_id}`",
        )


class WorldChanged(GateRefused):
    """What the plan was made from is not so any more; nothing was changed."""

    retriable = True


class OperationTakenUp(FailoverError):
    """Another machine has taken the operation up: what this one would still do, that one does."""

    def __init__(self, operation_id: str, how: str = "") -> None:
        """`how`: by whom, and what came of it, where that is known."""
        super().__init__(
            f"{operation_id} was taken up elsewhere{how}, and is not this machine's any more",
            hint=f"`farshore operation show {operation_id}` says by whom; `farshore operation wait {operation_id}`; "
            "once it has ended, aborted or given up: `farshore site role` says whether this machine froze a site "
            "behind that, and `farshore site thaw` lets its clients in",
        )


class JournalUnanswered(FailoverError):
    """The target was not told in time that the operation is carried on: others may take it up from now on."""

    retriable = True

    def __init__(self, operation_id: str, target: str) -> None:
        super().__init__(
            f"{target} was not told in time that {operation_id} is carried on here (it did not answer, or this machine "
            "stood still), so that this machine may not go on",
            hint=f"when {target} answers: `farshore operation resume {operation_id}`",
        )


class PlanUnreadable(FailoverError):
    """The file holds no plan of farshore's, or not as it was written."""


class NewerVersion(FailoverError):
    """What was asked for was written by a newer version of farshore: what it means is not guessed at."""

    hint = "use that version here, too"


class TakenOver(FailoverError):
    """Another command took a link over since this operation fenced it."""

    hint = "when no other command runs along it"

    def __init__(self, link: str) -> None:
        super().__init__(f"another command took {link} over since it was fenced")


class FenceShrank(FailoverError):
    """A worker that did not know yet that the link is not its own fenced it behind this operation, and the fence anew
    leaves out what the first one had, of which the journal was told. Taken up, the operation says what is left out.
    """

    hint = "when they take the fence again, or to go on with them left out"

    def __init__(self, link: str, left_out: Mapping[str, str]) -> None:
        """`left_out`: partitions, or the groups' commits, and why."""
        self.left_out = dict(left_out)
        told = ", ".join(f"{what} ({why})" for what, why in left_out.items())
        super().__init__(f"a worker fenced {link} behind this operation, and the fence anew does not reach {told}")


class CutShort(FailoverError):
    """Something failed when the move had begun (a site did not answer any more); taken up, the operation goes on."""

    retriable = True


class JournalDamaged(FailoverError):
    """A journal was changed or cut after it was written."""

    hint = (
        "somebody else wrote to, or deleted from, the topic it stands in: see who may. It is neither resumed nor "
        "aborted: `farshore switchover` or `farshore failover`, with --dry-run first, goes on with its links"
    )
