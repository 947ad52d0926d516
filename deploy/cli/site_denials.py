"""`farshore site` where ACLs close a site to its clients (`freeze_principals`): it has no role."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import click

from broker.base.ending import to_its_end
from broker.client.acls import WriteDenial
from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.wire.site_role import SiteRole
from deploy.cli.lines import filled
from failover.errors import FreezeNotAllowed, LockedOut, NotClosed
from failover.freezing.acl_freeze import AclFreeze, open_again
from failover.freezing.acl_rights import denials_to_make, look, may_make_acls, named_topics
from failover.freezing.closing import standing_in_words
from failover.freezing.denials import Denials, denials_of, is_named


async def change_denials(
    cluster: Cluster, role: SiteRole, topics: Sequence[str], consent: Callable[[str], None] | None
) -> Denials:
    """Close these topics (regular expressions; none: all), or open those of them that a freeze closed -> what is denied
    then. `consent` is asked with what will be done, and raises where it is not given; None: nothing is done, and what
    would be denied is returned.

    Raises NotClosed behind the first denial that was asked for, LockedOut, FreezeNotAllowed, ClientError.
    """
    if role is SiteRole.ACTIVE:
        return await _open(cluster, topics, consent)
    denials = await denials_to_make(cluster, topics)
    assert denials is not None, "it has freeze_principals"
    names, operation_id = await named_topics(cluster, topics), f"site-{role.value}"
    if consent is None:
        found = await look(cluster)
        made = dict.fromkeys(found.to_hold(names, denials.principals), frozenset({operation_id}))
        there = found.there | denials_of(names, denials.principals)
        return replace(found, there=there, marks={**found.marks, **made})
    consent(f"{cluster.site.name}: {', '.join(denials.principals)} may write no more, and fail, to {_told(names)}")
    freeze = AclFreeze(cluster, operation_id)
    closing = freeze.closing
    try:
        await freeze.close(denials, topics)
    except LockedOut as locked:
        await freeze.unlock(locked, topics)
        raise
    except (ClientError, FreezeNotAllowed) as error:
        if not closing.asked.sent:
            raise
        raise NotClosed(await standing_in_words(cluster, topics, str(error), closing), hint=error.hint) from error
    except asyncio.CancelledError:
        if closing.asked.sent:  # whoever interrupts it has to know what he leaves
            words = standing_in_words(cluster, topics, "it was interrupted", closing)
            click.echo(filled(await to_its_end(words)), err=True)
        raise
    return await look(cluster)


async def _open(cluster: Cluster, topics: Sequence[str], consent: Callable[[str], None] | None) -> Denials:
    found = await look(cluster)
    opening = [topic for topic in found.topics if is_named(topic, topics)]
    marked = [topic for topic in found.marked if is_named(topic, topics) and topic not in opening]
    if opening or marked:
        await may_make_acls(cluster)
    if consent is None:
        gone = {one for one in {*found.marks, *found.leaving} if is_named(one.topic, topics)}
        marks, leaving = _but(found.marks, gone), _but(found.leaving, gone)
        return replace(found, there=found.there - gone, marks=marks, leaving=leaving, differing=())
    marks_told = f"; marks of freezes that close nothing are taken back, of {', '.join(marked)}" if marked else ""
    consent(f"{cluster.site.name}: clients write again, to {_told(opening)}{marks_told}")
    await open_again(cluster, topics)
    return await look(cluster)


def _but(marks: Mapping[WriteDenial, frozenset[str]], gone: set[WriteDenial]) -> dict[WriteDenial, frozenset[str]]:
    return {one: by for one, by in marks.items() if one not in gone}


def _told(topics: Sequence[str]) -> str:
    return ", ".join(topics) or "no topic"
