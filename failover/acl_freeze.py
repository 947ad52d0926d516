"""Closing topics of a site to clients, and opening them, by its ACLs: Apache Kafka knows no roles."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from broker.base.ending import to_its_end
from broker.client.acls import (
    WriteDenial,
    await_denials,
    cluster_operations,
    create_denials,
    delete_denials,
    known_denials,
    writable_topics,
)
from broker.client.cluster import Cluster
from broker.client.errors import ClientError, KafkaError
from broker.client.site import Site
from broker.client.topics import list_topics
from broker.wire.errors import ErrorCode
from broker.wire.vocabulary import CLUSTER_OPERATIONS, AclOperation
from failover.denials import (
    EVERYBODY,
    Denials,
    SiteDenials,
    denials_of,
    is_named,
    leaving_mark_of,
    mark_of,
    names_of,
    read_denials,
)
from failover.errors import FreezeNotAllowed, LockedOut
from failover.limits import LOCK_OUT_LOOK_S, SOURCE_ROLE_S


@dataclass
class Closing:
    """What a close knows of itself that may be cut short. `asked`: denials that it asked for, answered or not;
    `is_lock_out_known`: whether it is known that farshore itself is, or is not, denied to write by what came of them.
    """

    asked: set[WriteDenial] = field(default_factory=set)
    is_lock_out_known: bool = True


class ThawUnderWay(ClientError):
    """Another freeze of the same topics is being taken back, and is not done with that: what it would take back with it
    is not known.
    """

    retriable = True


async def denials_to_make(cluster: Cluster, topics: Sequence[str]) -> SiteDenials | None:
    """How a site stands that is to be closed to these topics (regular expressions; none: to all); None: not by ACLs.
    Raises FreezeNotAllowed, also where it is known before that farshore would lock itself out; ClientError.
    """
    if not cluster.site.freeze_principals:
        return None
    await cluster.find_answering()
    found = await look(cluster)
    operations = await may_make_acls(cluster)
    writable = await writable_topics(cluster, await named_topics(cluster, topics))
    denials = SiteDenials(cluster.site.freeze_principals, found.marked, any(writable.values()), found.topics)
    if denials.is_writable and EVERYBODY in denials.principals and not operations >= CLUSTER_OPERATIONS:
        raise _locked_out(cluster.site)
    return denials


async def denials_to_end(cluster: Cluster, topics: Sequence[str]) -> SiteDenials | None:
    """As `denials_to_make`, of a site that is to be opened."""
    if not cluster.site.freeze_principals:
        return None
    await cluster.find_answering()
    found = await look(cluster)
    denials = SiteDenials(cluster.site.freeze_principals, found.marked, closed=found.topics)
    if denials.marks(topics):
        await may_make_acls(cluster)
    return denials


async def may_make_acls(cluster: Cluster) -> frozenset[AclOperation]:
    """What farshore may do to the cluster. Raises FreezeNotAllowed where that is not to make ACLs, ClientError."""
    operations = await cluster_operations(cluster)
    if AclOperation.ALTER not in operations:
        raise _not_allowed(cluster.site, "may not make ACLs", "Alter on the cluster")
    return operations


async def look(cluster: Cluster, behind: Collection[WriteDenial] = ()) -> Denials:
    """`behind`: as those brokers say that go by these, and so by all that was made before. Raises FreezeNotAllowed,
    ClientError.
    """
    try:
        return read_denials(await known_denials(cluster, behind))
    except KafkaError as error:
        if error.code is ErrorCode.SECURITY_DISABLED:
            raise FreezeNotAllowed(
                f"{cluster.site.name} has no authorizer, so that no ACL keeps anybody from writing there",
                hint=f"take freeze_principals out of [sites.{cluster.site.name}]; a freeze_hook can do it otherwise",
            ) from error
        if error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            raise _not_allowed(cluster.site, "may not see ACLs", "Describe and Alter on the cluster") from error
        raise


def _not_allowed(site: Site, what: str, right: str) -> FreezeNotAllowed:
    return FreezeNotAllowed(
        f"{principal_of(site)} {what} at {site.name}",
        hint=f"give it {right} (`kafka-acls --add --cluster`); or take freeze_principals out of [sites.{site.name}]: "
        "a freeze_hook can do it otherwise",
    )


def principal_of(site: Site) -> str:
    """As whom farshore comes, in words: how a cluster names it is the cluster's to say."""
    security = site.security
    if security.sasl is not None:
        return f"farshore's user {security.sasl.username or 'of its token'}"
    if security.tls is not None and security.tls.certificate_file is not None:
        return f"the user of {security.tls.certificate_file}"
    return "farshore, as which nobody logs in (User:ANONYMOUS)"


async def named_topics(cluster: Cluster, topics: Sequence[str]) -> list[str]:
    """Those that the expressions name and that are there now."""
    return sorted(name for name in await list_topics(cluster) if is_named(name, topics))


async def close(
    cluster: Cluster,
    denials: SiteDenials,
    topics: Sequence[str],
    operation_id: str,
    check: Callable[[], None] = lambda: None,
    closing: Closing | None = None,
) -> None:
    """Returns when every broker refuses the principals' writes to these topics; what it makes may be there already.
    What another operation has made both hold from then on: it goes when the last of them takes back its own. `check`:
    before whatever is asked to be changed, here and below, and raises where it is not to be any more. `closing`:
    says behind it, however it ends, what was asked for.

    Raises LockedOut, also in place of what cuts it short behind the denials; FreezeNotAllowed, ClientError
    (DenialsNotEverywhere, ThawUnderWay): then all or some of it may be made.
    """
    closing = closing or Closing()
    await cluster.find_answering()
    names = await named_topics(cluster, topics)
    found = await look(cluster)
    held = found.to_hold(names, denials.principals)
    marks = {mark_of(one, operation_id) for one in held}
    await create_denials(cluster, marks, check)
    try:
        # Who is cut short in what comes has denied it all the same.
        await _deny(cluster, held, operation_id, check, closing)
        await _when_nobody_leaves(cluster, held, operation_id, check)
        await _deny(cluster, held, operation_id, check, closing)  # those who left had not all seen the marks
        await await_denials(cluster, denials_of(names, denials.principals))
    except (ClientError, asyncio.CancelledError):
        try:  # the way out waits for it: a look, whatever one broker of it may take
            await to_its_end(asyncio.wait_for(_refuse_lock_out(cluster, denials, names), LOCK_OUT_LOOK_S))
        except (ClientError, TimeoutError):  # what cut it short is what is raised
            closing.is_lock_out_known = not closing.asked
        raise
    await _refuse_lock_out(cluster, denials, names)


async def _deny(
    cluster: Cluster,
    held: Iterable[WriteDenial],
    operation_id: str,
    check: Callable[[], None],
    closing: Closing,
) -> None:
    """Each in one request with its mark, which is there already: what lands late, behind a thaw that took the mark
    back, is known as a freeze's all the same.
    """
    held = set(held)

    def checked() -> None:
        check()
        closing.asked.update(held)

    await create_denials(cluster, held | {mark_of(one, operation_id) for one in held}, checked)


async def _refuse_lock_out(cluster: Cluster, denials: SiteDenials, names: Sequence[str]) -> None:
    """Raises LockedOut where a broker says that farshore itself may write no more; ClientError where none answers."""
    if denials.is_writable and names and not all((await writable_topics(cluster, names)).values()):
        raise _locked_out(cluster.site)


async def unlock(
    cluster: Cluster, operation_id: str, locked: LockedOut, check: Callable[[], None] = lambda: None
) -> None:
    """Take back what locks farshore itself out. Raises LockedOut where it is not known of every broker that it is."""
    try:
        await undo(cluster, operation_id, check=check)
    except (ClientError, FreezeNotAllowed) as error:
        text = f"{locked}; the ACLs are taken back, or are to be, and that is not known of every broker: {error}"
        raise LockedOut(text, hint=f"{thaw_of(cluster)}, when its brokers answer; then: {locked.hint}") from error


async def _when_nobody_leaves(
    cluster: Cluster, held: Iterable[WriteDenial], operation_id: str, check: Callable[[], None]
) -> None:
    """Returns when all have gone who may not have seen the marks of this one, and may take the denials with them. Who
    says behind the marks that he goes sees them, and who said it before is seen by whatever broker shows the marks.
    Raises ThawUnderWay, ClientError.
    """
    held, retry = set(held), cluster.retry()
    marks = {mark_of(one, operation_id) for one in held}
    while True:
        found = await look(cluster, marks)
        left_by = found.left_by(held)
        own = {leaving_mark_of(one, operation_id) for one, by in left_by.items() if operation_id in by}
        if own:  # it was given up before, and is taken up again
            await delete_denials(cluster, own, check)
            await await_denials(cluster, (), own)
            continue  # until now others could count on it
        others = {one.topic: by - {operation_id} for one, by in left_by.items() if by - {operation_id}}
        if not others:
            return
        await retry.pause(_thaw_under_way(cluster.site, others))


def _thaw_under_way(site: Site, others: Mapping[str, frozenset[str]]) -> ThawUnderWay:
    who = sorted(frozenset[str]().union(*others.values()))
    text = f"{', '.join(who)} takes back the freeze of {', '.join(sorted(others))} at {site.name}, or died doing so"
    thaw = f"`farshore site thaw --site {site.name}`"
    return ThawUnderWay(text, hint=f"`farshore operation list` says whether somebody carries it on; if not: {thaw}")


def _locked_out(site: Site) -> LockedOut:
    return LockedOut(
        f"what {', '.join(site.freeze_principals)} is denied at {site.name} is denied to {principal_of(site)}, too: "
        "nothing could be mirrored back",
        hint=f"make it one of the cluster's super.users; or name those who write, in place of {EVERYBODY}, in "
        f"freeze_principals of [sites.{site.name}]",
    )


async def undo(
    cluster: Cluster,
    operation_id: str,
    keep: Sequence[str] | None = None,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Take back what this operation has made, but for the topics to `keep` (regular expressions; None: keeps none).
    What another one holds, too, stays denied, until the last of them goes. Of several that go at once each sees that
    the others do, but for one that looked before the others said so: and that one is gone for those, or goes.
    """
    await cluster.find_answering()
    found = await look(cluster)
    ours = {one for one in found.of(operation_id) if keep is None or not is_named(one.topic, keep)}
    if not ours:
        return
    leaving = {leaving_mark_of(one, operation_id) for one in ours}
    await create_denials(cluster, leaving, check)
    found = await look(cluster, leaving)
    held_by_none = {one for one in ours if not found.is_held(one)}
    await _take_back(cluster, held_by_none, {mark_of(one, operation_id) for one in ours}, leaving, check)


async def open_again(cluster: Cluster, topics: Sequence[str], check: Callable[[], None] = lambda: None) -> None:
    """Take back what any freeze has made of these topics (regular expressions; none: of all)."""
    await cluster.find_answering()
    found = await look(cluster)
    chosen = {one for one in {*found.marks, *found.leaving} if is_named(one.topic, topics)}
    marks = {mark_of(one, by) for one in chosen for by in found.marks.get(one, ())}
    leaving = {leaving_mark_of(one, by) for one in chosen for by in found.leaving.get(one, ())}
    await _take_back(cluster, chosen, marks, leaving, check)


async def _take_back(
    cluster: Cluster,
    denials: Iterable[WriteDenial],
    marks: Iterable[WriteDenial],
    leaving: Iterable[WriteDenial],
    check: Callable[[], None],
) -> None:
    """Denials, their marks, and the word that those go: in this order at each broker, which hears of changes in turn.
    So who is cut short finds by the later ones what is left, nobody sees a mark without the word that it goes, and a
    broker without the later ones had taken back the denials: the next freeze may have made them again since. No mark
    goes without its denial, which may have come late, with that mark, since it was taken back.
    """
    denials, marks, leaving = set(denials), set(marks), set(leaving)
    for each in filter(None, (denials, marks and denials | marks, leaving)):
        await delete_denials(cluster, each, check)
    if own := marks | leaving:
        await await_denials(cluster, (), own)


async def standing_in_words(cluster: Cluster, topics: Sequence[str], why: str, closing: Closing) -> str:
    """What a site's ACLs deny of these topics behind a close that did not come to its end, for the reason `why`. Raises
    nothing: what the site does not say in time is told as unknown.
    """
    site, role = cluster.site.name, f"`farshore site role --site {cluster.site.name}` says how it stands"
    takes_back = f"{role}, {thaw_of(cluster)} takes them back"
    if not closing.is_lock_out_known:
        takes_back = f"whether they deny farshore itself to write there, too, is not known; {takes_back}"
    try:
        found = await asyncio.wait_for(look(cluster), SOURCE_ROLE_S)
    except (ClientError, FreezeNotAllowed, TimeoutError):
        unknown = f"whether ACLs keep clients from writing at {site} is not known ({why})"
        return f"{unknown}; {_coming(closing.asked)}; {takes_back}" if closing.asked else f"{unknown}; {role}"
    closed = [topic for topic in found.topics if is_named(topic, topics)]
    coming = {one for one in closing.asked if one not in found.there}
    if not closed and not coming:
        return f"no ACL of a freeze keeps clients from writing at {site} ({why})"
    if not closed:
        return f"no ACL of a freeze keeps clients from writing at {site} yet ({why}); {_coming(coming)}; {takes_back}"
    told = f"ACLs deny clients of {site} to write to {', '.join(closed)}"
    if found.differing:
        told += f", and brokers {', '.join(map(str, found.differing))} have not said that they go by them"
    for topic, still in found.in_part(cluster.site.freeze_principals).items():
        told += f"; {topic} is closed in part: {names_of(still)} can still write"
    if coming:
        told += f"; {_coming(coming)}"
    return f"{told} ({why}); {takes_back}"


def _coming(asked: Collection[WriteDenial]) -> str:
    topics = ", ".join(sorted({one.topic for one in asked}))
    return f"ACLs that deny to write to {topics} were asked for, and may come yet"


def thaw_of(cluster: Cluster) -> str:
    """The command that takes back what freezes have made there."""
    return f"`farshore site thaw --site {cluster.site.name}`"
