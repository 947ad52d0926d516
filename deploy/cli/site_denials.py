"""`farshore site` where ACLs close a site to its clients (`freeze_principals`): it has no role."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker.client.cluster import Cluster
from broker.wire.site_role import SiteRole
from failover.acl_freeze import close, denials_to_end, denials_to_make, named_topics, open_again, undo
from failover.denials import is_named
from failover.errors import LockedOut


async def change_denials(
    cluster: Cluster, role: SiteRole, topics: Sequence[str], consent: Callable[[str], None] | None
) -> tuple[str, ...]:
    """Close these topics (regular expressions; none: all), or open those of them that a freeze closed -> those that
    are closed then. `consent` is asked with what will be done, and raises where it is not given; None: nothing is done.

    Raises FreezeNotAllowed, ClientError.
    """
    if role is SiteRole.ACTIVE:
        return await _open(cluster, topics, consent)
    denials = await denials_to_make(cluster, topics)
    assert denials is not None, "it has freeze_principals"
    closing = await named_topics(cluster, topics)
    if consent is not None:
        consent(
            f"{cluster.site.name}: {', '.join(denials.principals)} may write no more, and fail, to {_told(closing)}"
        )
        try:
            await close(cluster, denials, topics, f"site-{role.value}")
        except LockedOut:
            await undo(cluster, f"site-{role.value}")
            raise
    return tuple(sorted({*denials.closed, *closing}))


async def _open(cluster: Cluster, topics: Sequence[str], consent: Callable[[str], None] | None) -> tuple[str, ...]:
    denials = await denials_to_end(cluster, topics)
    assert denials is not None, "it has freeze_principals"
    opening = [topic for topic in denials.closed if is_named(topic, topics)]
    marked = [topic for topic in denials.marked if is_named(topic, topics) and topic not in opening]
    if consent is not None:
        marks = f"; marks of freezes that close nothing are taken back, of {', '.join(marked)}" if marked else ""
        consent(f"{cluster.site.name}: clients write again, to {_told(opening)}{marks}")
        await open_again(cluster, topics)
    return tuple(topic for topic in denials.closed if topic not in opening)


def _told(topics: Sequence[str]) -> str:
    return ", ".join(topics) or "no topic"
