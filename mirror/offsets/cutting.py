"""A link and its state are cut into the same units: said once, before any unit is claimed, and held against each
worker's file.

Which unit a partition belongs to follows from their number. Where that changed, what stands in one unit's part would be
another's to read and to write on: so the number of a link that has state stays what it is. What unit 0's part says also
keeps a version away that knows of no units, and would take the whole link over by that part.
"""

from __future__ import annotations

from broker.client.cluster import Cluster
from broker.client.log import append
from broker.client.topics import describe_topics
from broker.wire.records import Record, encode_batch
from broker.wire.vocabulary import TopicPartition
from mirror.errors import LinkInvalid, StateDamaged
from mirror.link import Link
from mirror.offsets.entries import encode_key, encode_value
from mirror.offsets.state import read_entries
from mirror.offsets.state_entries import StateEntries
from mirror.offsets.unit_entries import LinkUnits


async def agree_on_units(target: Cluster, link: Link, own: StateEntries) -> None:
    """Return when the state says that the link is cut as it is declared; `own` is what the unit's own part says.

    Raises LinkInvalid where it says something else, StateDamaged, ClientError. The state topic must be there.
    """
    if own.units == link.units:
        _refuse_strangers(link, own)
    elif own.units is not None:
        raise _differ(link, own.units)
    elif link.units > 1:
        topic = (await describe_topics(target, [link.state_topic])).get(link.state_topic)
        lead = own if link.is_lead_unit else await read_entries(link.of_unit(0), target, only=())
        is_of_one = lead.units is None and lead.owner is not None and lead.owner.is_worker
        known = 1 if is_of_one else lead.units or (len(topic.partitions) if topic is not None else link.units)
        if known != link.units:
            raise _differ(link, known)
        if lead.units is None:
            await _say_units(target, link)


async def _say_units(target: Cluster, link: Link) -> None:
    """In unit 0's part, as nobody's producer: whoever says it says the same, and no unit waits for another to begin."""
    said = LinkUnits(link.units)
    batch = encode_batch([Record(0, target.clock.now_ms(), encode_key(said), encode_value(said))])
    await append(target, TopicPartition(link.state_topic, 0), batch)


def _refuse_strangers(link: Link, own: StateEntries) -> None:
    for topic, partition in own.checkpoints:
        if not link.carries(topic, partition):
            text = f"link {link.unit_name}: its part of {link.state_topic} at {link.target.name} has a position of"
            raise StateDamaged(f"{text} {topic}-{partition}, which is unit {link.unit_of(topic, partition)}'s")


def _differ(link: Link, known: int) -> LinkInvalid:
    cut = f"{known} units" if known > 1 else "one unit"
    return LinkInvalid(
        f"link {link.name} is declared with units = {link.units}, and its state at {link.target.name} is of {cut}",
        f"write units = {known} for the link in farshore.toml: what has run cannot be cut anew. Or stop it, and give it"
        f" another name and units = {link.units}: each partition then stops once, until `farshore link resume --gap"
        " TOPIC:PARTITION --adopt` has read both logs; nothing is repeated",
    )
