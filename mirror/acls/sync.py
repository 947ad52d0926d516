"""One pass over a link's ACLs: look at both sites, compare, and make at the target what is due."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from broker.client.acl_bindings import (
    Acl,
    AclsNotEverywhere,
    await_acls,
    create_acls,
    delete_acls,
    describe_acls,
    operation_word,
)
from broker.client.acls import topic_operations
from broker.client.cluster import Cluster
from broker.client.durable_topics import make_durable_topics
from broker.client.errors import ClientError
from broker.client.fanout import both
from broker.client.groups import list_groups
from broker.client.log import append
from broker.client.scan import scan_log
from broker.client.site import Site
from broker.client.topics import NewTopic, describe_each_topic, describe_topics, list_topics
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import (
    EVERY_RESOURCE,
    INTERNAL_PREFIX,
    AclOperation,
    AclPattern,
    AclResource,
    TopicPartition,
)
from mirror.acls.carrying import KINDS, AclScope, carry, is_about
from mirror.acls.plan import AclPlan, due_acls, plan_acls, plan_promotion
from mirror.acls.record import (
    AclRecord,
    RecordEntry,
    RecordFold,
    dropped_entries,
    held_entries,
    made_entries,
    unmade_entries,
)
from mirror.link import Link
from mirror.topics.plan import pair_topics
from mirror.topics.sync import look_at_topics

ACLS_TOPIC_CONFIGS = {"cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.1"}
"""It is read whole at each pass."""
ENTRIES_PER_BATCH = 1_000
NEEDED = frozenset({AclOperation.READ, AclOperation.WRITE, AclOperation.ALTER, AclOperation.ALTER_CONFIGS})
"""What the mirror does to the topics of its target."""
OwnRights: TypeAlias = frozenset[tuple[str, AclOperation]]
"""The mirror's, by topic."""


class ShutsOutMirror(ClientError):
    """With these ACLs the mirror itself may not do to a topic any more what it needs: they are taken back."""

    hint = "give farshore's principal its rights there by ACLs of its own (`farshore link rights` prints all)"


@dataclass(frozen=True, slots=True)
class AclsSeen:
    """A plan, and what it was made from at the target. `topics`: those there that are mirrored. `source_answers` False:
    it is made from the record alone.
    """

    plan: AclPlan
    target: frozenset[Acl]
    record: AclRecord
    topics: frozenset[str] = frozenset()
    source_answers: bool = True


@dataclass(frozen=True, slots=True)
class AclChanges:
    """What was done, in this order, and what failed, by ACL. `unsettled`: of what was made, where some broker has not
    said that it goes by it, so that it may shut out the mirror yet: what the mirror might do before.
    """

    created: tuple[Acl, ...]
    removed: tuple[Acl, ...]
    failures: tuple[tuple[Acl, ClientError], ...]
    unsettled: Mapping[Acl, OwnRights] = field(default_factory=dict)


class _Made(NamedTuple):
    """Which failed, or were taken back; and what is `AclChanges.unsettled`."""

    failures: dict[Acl, ClientError]
    unsettled: Mapping[Acl, OwnRights]

    def also(self, failures: Mapping[Acl, ClientError]) -> _Made:
        return self._replace(failures={**failures, **self.failures})


def own_principal(site: Site) -> str | None:
    """As whom farshore comes; None where only the cluster knows, as it reads a certificate, a token or a ticket."""
    security = site.security
    if security.sasl is not None:
        return f"User:{security.sasl.username}" if security.sasl.username else None
    is_named = security.tls is not None and security.tls.certificate_file is not None
    return None if is_named else "User:ANONYMOUS"


async def look_at_acls(
    link: Link, source: Cluster | None, target: Cluster, *, promoted: bool, rebuilt: bool = False
) -> AclsSeen:
    """Compare both sites. `source` None: it is lost, and the record says what was held back. `rebuilt`: the target lost
    what it had, so that also that goes there which a link back once brought from it.

    Raises KafkaError (SECURITY_DISABLED, CLUSTER_AUTHORIZATION_FAILED), ClientError.
    """
    there, record = await both(describe_acls(target, KINDS), read_record(link, target))
    if source is None:
        plan = plan_promotion(link.name, there, record) if promoted else AclPlan(link.name, promoted, ())
        return AclsSeen(plan, there, record, source_answers=False)
    found = await describe_acls(source, KINDS)
    brought = frozenset[Acl]() if rebuilt else await _brought_by_links_back(link, source)
    scope = await _scope(link, source, target, found - brought)
    plan = plan_acls(scope, carry(scope, found, found & brought), there, record, promoted=promoted)
    return AclsSeen(plan, there, record, frozenset(scope.topics.values()))


async def apply_acls(link: Link, target: Cluster, seen: AclsSeen, create: Sequence[Acl], *, remove: bool) -> AclChanges:
    """Make these of the plan; with `remove` also take away what it says, and from the record what is beyond. Where one
    denial fails nothing is allowed, and where one allowance stays no denial is taken away.

    What would keep the mirror from its work is taken back at once: a denial does, and where the cluster allows all that
    no ACL is about, so does the first ACL about a topic.
    What is made stands in the record before it is there: cut short, the link knows at most one too many as its own.
    Raises ClientError.
    """
    plan, record = seen.plan, seen.record
    now_ms = target.clock.now_ms()
    # What is still wanted was not taken away: the broker that was asked may be behind.
    gone = record.made - seen.target - {*plan.create}
    entries = [*made_entries([acl for acl in create if acl not in record.made], now_ms), *unmade_entries(sorted(gone))]
    waiting = _waiting(seen)
    await write_record(link, target, [*entries, *held_entries(waiting, record, now_ms)])
    failures, unsettled = await _make(target, [acl for acl in create if acl.is_denial], seen.topics)
    allowances = [acl for acl in create if not acl.is_denial]
    undone = set(allowances) if failures else set()
    if not failures:
        failures, more = await _make(target, allowances, seen.topics)
        unsettled = {**unsettled, **more}
    removed: list[Acl] = []
    for denials in (False, True) if remove else ():
        if failures:
            break
        going = [acl for acl in plan.remove if acl.is_denial == denials]
        failed = await delete_acls(target, going)
        removed += [acl for acl in going if acl not in failed]
        failures |= failed
    created = tuple(acl for acl in create if acl not in failures and acl not in undone)
    entries = [*unmade_entries(({*create} - {*created}) | {*removed})]
    entries += dropped_entries(record.beyond) if remove else ()
    waited = replace(record, held=waiting)
    entries += held_entries(waiting.difference(acl for acl in created if acl.is_denial), waited, now_ms)
    await write_record(link, target, entries)
    return AclChanges(created, tuple(removed), tuple(failures.items()), unsettled)


def _waiting(seen: AclsSeen) -> frozenset[Acl]:
    """What the record is to hold for a promotion. A denial, too, until it is there: without it, and without its source,
    a promotion would give what it takes away.
    """
    plan, record = seen.plan, seen.record
    if plan.promoted:
        return record.held - {*plan.settled}
    if not seen.source_answers:
        return record.held
    return frozenset({*plan.hold, *plan.held_again, *(acl for acl in plan.create if acl.is_denial)})


async def _make(target: Cluster, acls: Sequence[Acl], topics: Iterable[str]) -> _Made:
    """Raises ClientError."""
    concerned = {name for name in topics if any(is_about(acl, name) for acl in acls)}
    before = await _own_rights(target, concerned)
    failures: dict[Acl, ClientError] = {**await create_acls(target, acls)}
    made = {acl: _about(acl, before) for acl in acls if acl not in failures}
    return (await _settle(target, made)).also(failures)


async def _settle(target: Cluster, made: Mapping[Acl, OwnRights]) -> _Made:
    """Take back what of these takes a right that the mirror had before. Raises ClientError."""
    touching = {acl: before for acl, before in made.items() if before}
    if not touching:
        return _Made({}, {})
    unsettled = touching
    with suppress(AclsNotEverywhere):  # one that says nothing refuses nothing yet, and may later
        await await_acls(target, [*touching])
        unsettled = {}
    now = await _own_rights(target, {name for before in touching.values() for name, _ in before})
    missing = frozenset[tuple[str, AclOperation]]().union(*touching.values()) - now
    missing = await _of_topics_there(target, missing)
    lost = {acl: rights for acl, before in touching.items() if (rights := before & missing)}
    undone = {acl: ShutsOutMirror(_without(rights)) for acl, rights in lost.items()}
    left = await delete_acls(target, [*undone])
    again = {acl: before for acl, before in touching.items() if acl in left or (acl in unsettled and acl not in undone)}
    return _Made({**undone, **left}, again)


async def _of_topics_there(target: Cluster, rights: OwnRights) -> OwnRights:
    """Those that something took, be the topic hidden by now; of one that is gone nobody has any."""
    found, hidden = await describe_each_topic(target, {name for name, _ in rights}) if rights else ({}, {})
    return frozenset(right for right in rights if right[0] in found or right[0] in hidden)


def _without(rights: OwnRights) -> str:
    written = sorted(name for name, operation in rights if operation is AclOperation.WRITE)
    if written:
        return f"with it the mirror may not write to {', '.join(written)}"
    return f"with it the mirror lacks {', '.join(f'{operation_word(one)} on {name}' for name, one in sorted(rights))}"


def _about(acl: Acl, rights: OwnRights) -> OwnRights:
    return frozenset(right for right in rights if is_about(acl, right[0]))


async def _own_rights(target: Cluster, topics: Iterable[str]) -> OwnRights:
    """What all brokers that say it let the mirror do to these, of what it needs there."""
    wanted = frozenset(topics)
    if not wanted:
        return frozenset()
    first, *others = (await topic_operations(target, wanted)).values()
    return frozenset(right for right in first.intersection(*others) if right[1] in NEEDED)


async def sync_acls(
    link: Link,
    source: Cluster,
    target: Cluster,
    shown_before: frozenset[Acl],
    shut_out: Collection[Acl] = (),
    unsettled: Mapping[Acl, OwnRights] = MappingProxyType({}),
) -> tuple[AclsSeen, AclChanges]:
    """One pass of a worker, whose target stands by: denials are made at once, what allows when the pass before has
    shown it. It removes nothing. `shut_out`: what kept the mirror from its work before, and is not tried again; where
    one of them is a denial nothing is allowed. `unsettled`: as the pass before left it, and looked at again first.
    Raises as `look_at_acls`.
    """
    there = await describe_acls(target, KINDS) if unsettled else frozenset()
    settled = await _settle(target, {acl: before for acl, before in unsettled.items() if acl in there})
    taken_back = [acl for acl, error in settled.failures.items() if isinstance(error, ShutsOutMirror)]
    await write_record(link, target, unmade_entries(sorted(taken_back)))
    shut_out = {*shut_out, *taken_back}
    seen = await look_at_acls(link, source, target, promoted=False)
    create = [acl for acl in seen.plan.create if acl not in shut_out]
    due = [acl for acl in create if acl.is_denial]
    if not any(acl.is_denial and acl in shut_out for acl in seen.plan.create):
        due += due_acls((acl for acl in create if not acl.is_denial), shown_before)
    changes = await apply_acls(link, target, seen, due, remove=False)
    return seen, replace(
        changes,
        failures=(*settled.failures.items(), *changes.failures),
        unsettled={**settled.unsettled, **changes.unsettled},
    )


async def read_record(link: Link, cluster: Cluster) -> AclRecord:
    """That of the link, at its target. Raises ClientError."""
    where = TopicPartition(link.acls_topic, 0)
    if not await describe_topics(cluster, [where.topic]):
        return AclRecord()
    fold = RecordFold(link)
    await scan_log(cluster, where, lambda record: fold.take(record.offset, record.key, record.value))
    return fold.record()


async def write_record(link: Link, target: Cluster, entries: Iterable[RecordEntry]) -> None:
    """Nothing is written, and no topic made, where there are none. Raises ClientError."""
    waiting = list(entries)
    if not waiting:
        return
    await _ensure_topic(link, target)
    now_ms = target.clock.now_ms()
    for at in range(0, len(waiting), ENTRIES_PER_BATCH):
        records = [Record(n, now_ms, *entry) for n, entry in enumerate(waiting[at : at + ENTRIES_PER_BATCH])]
        await append(target, TopicPartition(link.acls_topic, 0), encode_batch(records))


async def _ensure_topic(link: Link, target: Cluster) -> None:
    if await describe_topics(target, [link.acls_topic]):
        return
    await make_durable_topics(target, [NewTopic(link.acls_topic, 1, configs=ACLS_TOPIC_CONFIGS)])


async def _brought_by_links_back(link: Link, source: Cluster) -> frozenset[Acl]:
    found: set[Acl] = set()
    for back in link.reverse_links:
        record = await read_record(back, source)
        # A link that was narrowed has brought what it carries no more, too.
        found |= record.made | record.beyond
    return frozenset(found)


async def _scope(link: Link, source: Cluster, target: Cluster, acls: Iterable[Acl]) -> AclScope:
    seen = await look_at_topics(link, source, target)
    at_target = frozenset(await list_topics(target))
    topics = {pair.source_topic: pair.target_topic for pair in pair_topics(link, seen.source, seen.target)}
    # One that could not be looked at is not gone: what was carried over of it stays wanted.
    unseen = {name: link.target_topic(name) for name in seen.source_failures}
    topics |= {name: there for name, there in unseen.items() if there in at_target}
    own = {name: there for name, there in topics.items() if not name.startswith(INTERNAL_PREFIX)}
    groups = {
        acl.resource_name
        for acl in acls
        if acl.resource_type == AclResource.GROUP and acl.pattern_type == AclPattern.LITERAL
    }
    if link.groups:
        groups |= (await list_groups(source)).keys()
    selected = frozenset(name for name in groups - {EVERY_RESOURCE} if link.selects_group(name))
    return AclScope(link, own, at_target, selected, own_principal(link.target))
