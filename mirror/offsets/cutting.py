"""A link and its state are cut into the same units: said once, before any unit is claimed, and held against each
worker's file.

Which unit a partition belongs to follows from their number. Where that changed, what stands in one unit's part would be
another's to read and to write on: so a file that says something else is refused until the link is cut anew
(`recutting.py`). What unit 0's part says also keeps a version away that knows of no units, and would take the whole
link over by that part.
"""

from __future__ import annotations

from dataclasses import replace

from broker.client.cluster import Cluster
from broker.client.log import append
from broker.client.topics import describe_topics
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import TopicPartition
from mirror.errors import LinkFenced, LinkInvalid, StateDamaged
from mirror.link import Link
from mirror.offsets.entries import encode_key, encode_value
from mirror.offsets.state import read_entries
from mirror.offsets.state_entries import StateEntries
from mirror.offsets.state_writer import ensure_own_topics, own_topics
from mirror.offsets.unit_entries import LinkUnits


async def agree_on_units(target: Cluster, link: Link, own: StateEntries) -> None:
    """Return when the state says that the link is cut as it is declared; `own` is what the unit's own part says.

    Raises LinkInvalid where it says something else, StateDamaged, ClientError. The state topic must be there.
    """
    if own.units is not None:
        refuse_other_cut(link, own)
        _refuse_strangers(link, own)
    elif link.unit_count > 1:
        topic = (await describe_topics(target, [link.state_topic])).get(link.state_topic)
        lead = own if link.is_lead_unit else await read_entries(link.of_unit(0), target, only=())
        if lead.units is not None:
            refuse_other_cut(link, lead)
            return
        is_of_one = lead.owner is not None and lead.owner.is_worker
        known = 1 if is_of_one else len(topic.partitions) if topic is not None else link.unit_count
        if known != link.unit_count:
            raise _differ(link, replace(link, units=known, pins=()))
        await _say_units(target, link)


def refuse_other_cut(link: Link, entries: StateEntries) -> None:
    """Raise LinkInvalid where the state says that the link is cut otherwise than it is declared. Also behind the fence:
    it may have been cut anew before that. Pure.
    """
    known = entries.cut(link)
    if known != link:
        raise _differ(link, known)


def refuse_cut_anew(link: Link, lead: StateEntries) -> None:
    """Raise LinkFenced where unit 0's part (or all of the state), read behind its claim, says that the link was cut
    anew since an operation looked how it is cut. Until somebody else claims that part it is not again. Pure.
    """
    if lead.deal is not None and lead.cut(link) != link:
        raise LinkFenced(f"link {link.name} was cut anew meanwhile")


async def state_units(link: Link, target: Cluster) -> list[Link]:
    """The link's units, as its state is cut, whatever its file says by now; its topics are made where they are not
    there. Raises ClientError, StateDamaged.

    A worker makes the state's parts before it claims one, and who cuts the link anew before that counts: none is
    overlooked.
    """
    topics = await describe_topics(target, own_topics(link))
    if len(topics) < len(own_topics(link)):  # or a broker that has just begun does not know them yet
        await ensure_own_topics(target, link)
        topics = await describe_topics(target, own_topics(link))
    topic = topics.get(link.state_topic)
    parts = len(topic.partitions) if topic is not None else link.unit_count  # it was made just now
    if parts == 1:
        return replace(link, units=1, pins=()).each_unit()
    lead = await read_entries(replace(link, units=parts, pins=(), unit=0), target, only=())
    if lead.units is not None:
        return lead.cut(replace(link, unit=None)).each_unit()
    # A state of one unit, in a topic that somebody made with more partitions, does not say how it is cut.
    known = 1 if lead.owner is not None and lead.owner.is_worker else parts
    return replace(link, units=known, pins=()).each_unit()


async def _say_units(target: Cluster, link: Link) -> None:
    """In unit 0's part, as nobody's producer: whoever says it says the same, and no unit waits for another to begin."""
    said = LinkUnits(link.units, link.pins)
    batch = encode_batch([Record(0, target.clock.now_ms(), encode_key(said), encode_value(said))])
    await append(target, TopicPartition(link.state_topic, 0), batch)


def _refuse_strangers(link: Link, own: StateEntries) -> None:
    for topic, partition in own.checkpoints:
        if not link.carries(topic, partition):
            text = f"link {link.unit_name}: its part of {link.state_topic} at {link.target.name} has a position of"
            raise StateDamaged(f"{text} {topic}-{partition}, which is unit {link.unit_of(topic, partition)}'s")


def _differ(link: Link, known: Link) -> LinkInvalid:
    pins = "".join(f" --pin {topic}:{partition}" for topic, partition in link.pins)
    return LinkInvalid(
        f"link {link.name} is declared with {cut_in_words(link)}, and its state at {link.target.name} is of"
        f" {cut_in_words(known)}",
        f"write {cut_in_words(known)} for the link in farshore.toml; or cut it anew:"
        f" farshore link cut --link {link.name} --units {link.units}{pins}",
    )


def cut_in_words(link: Link) -> str:
    """As farshore.toml says it."""
    pins = ", ".join(f'"{topic}:{partition}"' for topic, partition in link.pins)
    return f"units = {link.units} and pins = [{pins}]" if pins else f"units = {link.units}"
