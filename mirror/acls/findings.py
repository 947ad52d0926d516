"""What about a link's ACLs needs somebody's attention, by the record that its worker keeps at the target. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from broker.base.durations import human_seconds
from broker.client.errors import ClientError
from mirror.acls.record import AclLook, AclRecord
from mirror.heartbeat import OLDEST_ALIVE_MS
from mirror.limits import ACLS_NOT_SEEN_AFTER_MS
from mirror.link import Link
from mirror.link_finding import LinkFinding, LinkFindingKind
from mirror.offsets.entries import RunState
from mirror.offsets.state_entries import StateEntries


def acl_findings(
    link: Link, entries: StateEntries, found: AclRecord | ClientError | None, *, source_answers: bool
) -> Iterator[LinkFinding]:
    """Of a link that carries ACLs; `found` None: of one that does not. Of a source that does not answer another finding
    speaks.
    """
    if found is None:
        return
    if isinstance(found, ClientError):
        text = f"what was carried over of ACLs is not known: {found}"
        yield LinkFinding(LinkFindingKind.ACLS_NOT_SEEN, None, None, text, found.hint or "")
        return
    if found.beyond:
        step = f"farshore acls plan --link {link.name}"
        yield LinkFinding(LinkFindingKind.ACLS_DIFFER, None, None, said_of_beyond(link, found), step)
    if entries.run is not None and entries.run.state is RunState.PROMOTED:
        yield from _of_promotion(link, found)
        return
    if entries.run is not None and entries.run.state is not RunState.RUNNING:
        return
    owner = entries.owners().get(0, entries.owner)  # unit 0's worker carries them
    if owner is not None:
        yield from _of_look(link, found.look, owner.at_ms, source_answers=source_answers)


def said_of_beyond(link: Link, found: AclRecord) -> str:
    """Of a record that has ACLs of what the link does not carry."""
    text = f"{link.acls_topic} at {link.target.name} has {len(found.beyond)} ACLs of what the link does not carry, "
    return f"{text}and none of them is made or removed for that; the first: {min(found.beyond)}"


def _of_promotion(link: Link, found: AclRecord) -> Iterator[LinkFinding]:
    waiting = found.held - found.made
    if waiting:
        text = f"{len(waiting)} ACLs were held back while {link.target.name} stood by, and were not made since: "
        text += f"the first {min(waiting)}"
        step = f"farshore acls apply --link {link.name} --promote"
        yield LinkFinding(LinkFindingKind.ACLS_HELD, None, None, text, step)


def _of_look(link: Link, look: AclLook | None, now_ms: int, *, source_answers: bool) -> Iterator[LinkFinding]:
    """`now_ms`: by the worker's clock, as the look is."""
    age_ms = None if look is None else now_ms - look.at_ms
    if look is None or age_ms is None or not -OLDEST_ALIVE_MS <= age_ms <= ACLS_NOT_SEEN_AFTER_MS:
        since = "yet" if age_ms is None else f"for {human_seconds(abs(age_ms) / 1000)}"
        step = "if it stays so, see event=acls_failed in the mirror's output"
        yield LinkFinding(LinkFindingKind.ACLS_NOT_SEEN, None, None, f"no ACL was looked at {since}", step)
        return
    if look.trouble:
        if source_answers:
            text = f"ACLs could not be compared: {look.trouble}"
            yield LinkFinding(LinkFindingKind.ACLS_NOT_SEEN, None, None, text, look.hint)
        return
    opened = 0 if link.shared_targets else look.open_at_target  # there others are to write
    told = [
        (look.failed, "could not be made"),
        (look.withheld, "are not carried over, and the plan says why"),
        (opened, "let others write there while it stands by, and are not the link's"),
        (look.to_remove, "were made by the link, and are wanted no more"),
    ]
    if any(count for count, _ in told):
        text = "; ".join(f"{count} ACLs {what}" for count, what in told if count)
        text += f" ({look.failure})" if look.failure else ""
        step = f"farshore acls plan --link {link.name}"
        yield LinkFinding(LinkFindingKind.ACLS_DIFFER, None, None, f"at {link.target.name} {text}", step)
