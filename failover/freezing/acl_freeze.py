"""Closing topics of a site to clients, and opening them, by its ACLs: Apache Kafka knows no roles."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from broker.base.ending import to_its_end
from broker.client.acls import WriteDenial, await_denials, create_denials, delete_denials, writable_topics
from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.site import Site
from broker.client.without_acls import OpenTopics, open_without_acls
from failover.errors import FreezeNotAllowed, LockedOut
from failover.freezing.acl_rights import first_acl, locked_out, look, named_topics
from failover.freezing.closing import MAY_COME, Closing, role_of, thaw_of
from failover.freezing.denials import SiteDenials, denials_of, is_named, leaving_mark_of, mark_of
from failover.limits import LATE_DENIALS_POLL_S, LATE_DENIALS_S, LOCK_OUT_LOOK_S


class ThawUnderWay(ClientError):
    """Another freeze of the same topics is being taken back, and is not done with that: what it would take back with it
    is not known.
    """

    retriable = True


class Closed(NamedTuple):
    """The topics that a freeze closed, and those that it left open, as its ACLs would be the first about them."""

    topics: tuple[str, ...]
    left_open: OpenTopics


@dataclass(frozen=True, slots=True)
class AclFreeze:
    """What one operation denies at a site. Each step may be repeated: what is there is looked at first.

    `renew`: awaited before each request that changes something, and raises where the operation may be another
    machine's by now. `closing`: says, however a close ends, what that has asked for.
    """

    cluster: Cluster
    operation_id: str
    renew: Callable[[], Awaitable[None]] | None = None
    closing: Closing = field(default_factory=Closing)

    async def close(self, denials: SiteDenials, topics: Sequence[str], *, leaves_open: bool = False) -> Closed:
        """Returns when every broker refuses the principals' writes to these topics; what it makes may be there already.
        What another operation has made both hold from then on: it goes when the last of them takes back its own.
        `leaves_open`: topics of which its ACLs would be the first, in place of raising FirstAcl, with nothing made.

        Raises LockedOut, also in place of what cuts it short behind the denials; FreezeNotAllowed, ClientError
        (DenialsNotEverywhere, ThawUnderWay): then all or some of it may be made.
        """
        cluster = self.cluster
        await cluster.find_answering()
        names = await named_topics(cluster, topics, denials.hidden)
        found = await look(cluster)
        open_ones = await open_without_acls(cluster, names)
        if open_ones.names and not leaves_open:
            raise first_acl(cluster.site, open_ones)
        names = [name for name in names if name not in open_ones.names]
        held = found.to_hold(names, denials.principals)
        await create_denials(cluster, self._marks(held), self.renew)
        try:
            # Who is cut short in what comes has denied it all the same.
            await self._deny(held)
            await self._when_nobody_leaves(held)
            await self._deny(held)  # those who left had not all seen the marks
            await await_denials(cluster, denials_of(names, denials.principals))
        except (ClientError, asyncio.CancelledError):
            try:  # the way out waits for it: a look, whatever one broker of it may take
                await to_its_end(asyncio.wait_for(_refuse_lock_out(cluster, denials, names), LOCK_OUT_LOOK_S))
            except (ClientError, TimeoutError):  # what cut it short is what is raised
                self.closing.is_lock_out_known = not self.closing.asked.sent
            raise
        await _refuse_lock_out(cluster, denials, names)
        return Closed(tuple(names), open_ones)

    async def _deny(self, held: Set[WriteDenial]) -> None:
        """Each in one request with its mark, which is there already: what lands late, behind a thaw that took the mark
        back, is known as a freeze's all the same.
        """
        await create_denials(self.cluster, held | self._marks(held), self.renew, self.closing.asked)

    async def _when_nobody_leaves(self, held: Set[WriteDenial]) -> None:
        """Returns when all have gone who may not have seen the marks of this one, and may take the denials with them.
        Who says behind the marks that he goes sees them, and who said it before is seen by whatever broker shows the
        marks. Raises ThawUnderWay, ClientError.
        """
        retry, marks = self.cluster.retry(), self._marks(held)
        while True:
            found = await look(self.cluster, marks)
            left_by = found.left_by(held)
            own = self._leaving_marks(one for one, by in left_by.items() if self.operation_id in by)
            if own:  # it was given up before, and is taken up again
                await delete_denials(self.cluster, own, self.renew)
                await await_denials(self.cluster, (), own)
                continue  # until now others could count on it
            others = {one.topic: by - {self.operation_id} for one, by in left_by.items() if by - {self.operation_id}}
            if not others:
                return
            await retry.pause(_thaw_under_way(self.cluster.site, others))

    async def unlock(self, locked: LockedOut, topics: Sequence[str]) -> None:
        """Take back what locks farshore itself out, of a close of these topics. Raises LockedOut where it is not known
        of every broker that it is, or what the close has asked for may come yet.
        """
        try:
            await self._undo(None, set())
        except (ClientError, FreezeNotAllowed) as error:
            text = f"{locked}; the ACLs are taken back, or are to be, and that is not known of every broker: {error}"
            hint = f"{thaw_of(self.cluster, topics)}, when its brokers answer; then: {locked.hint}"
            raise LockedOut(text, hint=hint) from error
        if self.closing.may_come:
            text = f"{locked}; the ACLs were taken back, but some {MAY_COME}"
            hint = f"{role_of(self.cluster)}, {thaw_of(self.cluster, topics)} takes them back; then: {locked.hint}"
            raise LockedOut(text, hint=hint)

    async def undo(self, keep: Sequence[str] | None = None) -> None:
        """Take back what this operation has made, but for the topics to `keep` (regular expressions; None: keeps none).
        What another one holds, too, stays denied, until the last of them goes. Of several that go at once each sees
        that the others do, but for one that looked before the others said so: and that one is gone for those, or goes.

        What its `closing` asked for, or inherited, and nobody answered is looked for again, for LATE_DENIALS_S; then it
        may come yet, as `closing` says. Raises FreezeNotAllowed, ClientError.
        """
        undone, clock = set[WriteDenial](), self.cluster.clock
        until_s = clock.boottime() + LATE_DENIALS_S
        while True:
            await self._undo(keep, undone)
            if not self.closing.topics_to_come or clock.boottime() >= until_s:
                return
            await clock.sleep(LATE_DENIALS_POLL_S)

    async def _undo(self, keep: Sequence[str] | None, undone: set[WriteDenial]) -> None:
        """As the site is now; `undone` then has what was taken back."""
        await self.cluster.find_answering()
        found = await look(self.cluster)
        self.closing.note_seen(found, self.operation_id, undone)
        ours = {one for one in found.of(self.operation_id) if keep is None or not is_named(one.topic, keep)}
        if not ours:
            return
        leaving = self._leaving_marks(ours)
        await create_denials(self.cluster, leaving, self.renew)
        found = await look(self.cluster, leaving)
        held_by_none = {one for one in ours if not found.is_held(one)}
        await _take_back(self.cluster, held_by_none, self._marks(ours), leaving, self.renew)
        undone |= ours

    def _marks(self, denials: Iterable[WriteDenial]) -> set[WriteDenial]:
        return {mark_of(one, self.operation_id) for one in denials}

    def _leaving_marks(self, denials: Iterable[WriteDenial]) -> set[WriteDenial]:
        return {leaving_mark_of(one, self.operation_id) for one in denials}


async def _refuse_lock_out(cluster: Cluster, denials: SiteDenials, names: Sequence[str]) -> None:
    """Raises LockedOut where a broker says that farshore itself may write no more; ClientError where none answers."""
    if denials.is_writable and names and not all((await writable_topics(cluster, names)).values()):
        raise locked_out(cluster.site)


def _thaw_under_way(site: Site, others: Mapping[str, frozenset[str]]) -> ThawUnderWay:
    who = sorted(frozenset[str]().union(*others.values()))
    text = f"{', '.join(who)} takes back the freeze of {', '.join(sorted(others))} at {site.name}, or died doing so"
    thaw = f"`farshore site thaw --site {site.name}`"
    return ThawUnderWay(text, hint=f"`farshore operation list` says whether somebody carries it on; if not: {thaw}")


async def open_again(
    cluster: Cluster,
    topics: Sequence[str],
    renew: Callable[[], Awaitable[None]] | None = None,
    but: Sequence[str] = (),
) -> None:
    """Take back what any freeze has made of these topics (regular expressions; none: of all), `but` of those; `renew`
    as `AclFreeze` has it.
    """
    await cluster.find_answering()
    found = await look(cluster)
    chosen = {one for one in {*found.marks, *found.leaving} if is_named(one.topic, topics)}
    chosen -= {one for one in chosen if but and is_named(one.topic, but)}
    marks = {mark_of(one, by) for one in chosen for by in found.marks.get(one, ())}
    leaving = {leaving_mark_of(one, by) for one in chosen for by in found.leaving.get(one, ())}
    await _take_back(cluster, chosen, marks, leaving, renew)


async def _take_back(
    cluster: Cluster,
    denials: Iterable[WriteDenial],
    marks: Iterable[WriteDenial],
    leaving: Iterable[WriteDenial],
    renew: Callable[[], Awaitable[None]] | None,
) -> None:
    """Denials, their marks, and the word that those go: in this order at each broker, which hears of changes in turn.
    So who is cut short finds by the later ones what is left, nobody sees a mark without the word that it goes, and a
    broker without the later ones had taken back the denials: the next freeze may have made them again since. No mark
    goes without its denial, which may have come late, with that mark, since it was taken back.
    """
    denials, marks, leaving = set(denials), set(marks), set(leaving)
    for each in filter(None, (denials, marks and denials | marks, leaving)):
        await delete_denials(cluster, each, renew)
    if own := marks | leaving:
        await await_denials(cluster, (), own)
