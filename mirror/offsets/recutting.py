"""Cutting a link anew: the state of each partition that changes its unit goes to the part of the next one.

Who does that holds the fences of all units, old and new, and pauses the link first. Which unit a partition belongs to
is said by the deal in unit 0's part alone: before that is another one the link is as it was, whatever stands in the new
parts, and behind it the old ones' leftovers do not count. So what is cut short leaves a link that is paused, by the one
deal or the other, until this is done again or the link is resumed (`docs/adr/0025-a-link-is-cut-anew.md`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from broker.client.cluster import Cluster
from broker.client.errors import ClientError
from broker.client.model import Topic
from broker.client.topics import create_partitions, describe_topics, list_each_topic
from broker.wire.vocabulary import TopicPartition
from mirror.errors import LinkFenced, LinkNotCut, LinkPromoted
from mirror.limits import FENCE_AWAITS_NAMED_MAX
from mirror.link import Link, Pin
from mirror.offsets.cutting import cut_in_words, state_units
from mirror.offsets.entries import OPERATION_PREFIX, LinkRun, RunState
from mirror.offsets.fence import fence_link
from mirror.offsets.operations import unless_fenced
from mirror.offsets.part_records import (
    PartRecords,
    carried,
    pauses,
    pauses_of_lead,
    positions,
    read_part,
    strangers,
    take_over,
)
from mirror.offsets.promotions import run_behind
from mirror.offsets.state import read_entries
from mirror.offsets.state_entries import StateEntries
from mirror.offsets.state_writer import Carried, StateLog
from mirror.offsets.tail import writable_of
from mirror.offsets.taking_over import Claim, claim_link
from mirror.offsets.unit_entries import LinkDeal

CUT_PREFIX: Final = "cut-"
"""How the ids of these operations begin: a link that one of them has paused nobody else wants to be paused."""


async def cut_link(link: Link, target: Cluster, operation_id: str, units: int, pins: Iterable[Pin] = ()) -> LinkDeal:
    """Cut the link into so many units, and one for each of the pins, whatever it was cut into -> how it is cut now.

    It stands still meanwhile, and goes on behind that, unless a person has paused it. `operation_id` begins with
    CUT_PREFIX. May be repeated, also where it was cut short. Raises LinkNotCut where not all of the target can be
    fenced now, or it never ran, and LinkPromoted: then nothing has changed; LinkFenced when others take the link over
    again and again, StateDamaged, and ClientError: then the link may be left paused.
    """
    assert operation_id.startswith(CUT_PREFIX), "a repeated cut would take this one's pause for a person's"
    new = replace(link, units=units, pins=tuple(sorted(set(pins))), unit=None)
    return await unless_fenced(target, partial(_cut_link, target, operation_id, new))


async def _cut_link(target: Cluster, operation_id: str, new: Link) -> LinkDeal:
    before = await read_entries(new, target, only=())
    if before.owner is None:
        text = f"link {new.name} never ran: there is nothing to cut anew"
        raise LinkNotCut(text, f"write {cut_in_words(new)} for the link in farshore.toml before it does")
    _refuse_promoted(before)
    lead = (await state_units(new, target))[0]
    old, deal = replace(lead, unit=None), before.deal or LinkDeal(lead.units, lead.pins)
    claim = partial(claim_link, target, worker=f"{OPERATION_PREFIX}{operation_id}")
    held = _Held(target, old)
    # Without the deal the number of parts, which is about to grow, would be taken for that of the units.
    await held.take(await claim(lead, also=[deal], check=partial(_refuse_other_deal, target, lead, before.deal)))
    for unit in range(1, old.unit_count):
        await held.take(await claim(_part(old, unit)))
    await held.pause(deal, operation_id)
    for unit in range(old.unit_count, await _make_parts(target, new)):
        await held.take(await claim(_part(old, unit)))
    await held.pause(deal, operation_id)
    await held.fence(deal)
    if old != new:
        await held.carry(new)
        deal = LinkDeal(new.units, new.pins, deal.epoch + 1)
        await held.say(deal)
    await held.release(new, deal)
    return deal


async def _refuse_other_deal(target: Cluster, lead: Link, known: LinkDeal | None) -> None:
    """Behind the fence of unit 0's part. Raises LinkFenced, LinkPromoted, ClientError, StateDamaged."""
    found = await read_entries(lead, target, only=())
    _refuse_promoted(found)
    if found.deal != known:
        raise LinkFenced(f"link {lead.name} was cut anew meanwhile")


def _part(link: Link, unit: int) -> Link:
    """What claims, and writes, that part of the state, though the link may have no such unit."""
    return replace(link, unit=unit)


def _refuse_promoted(entries: StateEntries) -> None:
    if entries.run is not None and entries.run.state is RunState.PROMOTED:
        raise _promoted(entries.link)


def _promoted(link: Link) -> LinkPromoted:
    return LinkPromoted(f"link {link.name} does not run: {link.target.name} was promoted")


async def _make_parts(target: Cluster, link: Link) -> int:
    """See that there is a part for each unit -> how many there are. Raises ClientError."""
    retry, name = target.retry(), link.state_topic
    while True:
        topic = (await describe_topics(target, [name])).get(name)
        count = len(topic.partitions) if topic is not None else 0
        if count >= link.unit_count:
            return count
        for error in (await create_partitions(target, {name: link.unit_count})).values():
            await retry.pause(error)  # somebody else has made them, say


def is_of_cut(run: LinkRun) -> bool:
    """Whether it was said by who cut the link anew, and by no person."""
    return run.operation_id.startswith(CUT_PREFIX)


@dataclass(slots=True)
class _Held:
    """The parts of the state, each as it stands behind its claim: nobody else writes them but workers that say who they
    are, and read then that they may not run, and nobody's producer.
    """

    target: Cluster
    old: Link
    claims: list[Claim] = field(default_factory=list)
    logs: list[StateLog] = field(default_factory=list)
    parts: dict[int, PartRecords] = field(default_factory=dict)
    stop: LinkRun | None = None
    """What pauses the link meanwhile."""
    paused: int = 0
    """So many of the parts."""

    async def take(self, claim: Claim) -> None:
        """The next part is claimed. Raises LinkPromoted where the link was promoted in between."""
        unit = len(self.claims)
        self.claims.append(claim)
        self.logs.append(claim.log)
        part = self.parts[unit] = await read_part(self.target, _part(self.old, unit))
        run = part.run() if unit < self.old.unit_count else None
        if run is not None and run.state is RunState.PROMOTED:
            raise _promoted(self.old)

    async def pause(self, deal: LinkDeal, operation_id: str) -> None:
        """In each part: no unit runs from here on, and who begins reads it behind its own fence. A person's pause,
        where there is one, stays.
        """
        if self.stop is None:
            runs = [self.parts[unit].run() for unit in range(self.old.unit_count)]
            asked = (run for run in runs if run is not None and run.state is RunState.PAUSED and not is_of_cut(run))
            now_ms = self.target.clock.now_ms()
            self.stop = next(asked, run_behind(runs[0], RunState.PAUSED, operation_id, now_ms))
        for claim in self.claims[self.paused :]:
            await claim.log.append([self.stop, deal, claim.owner])
        self.paused = len(self.claims)

    async def fence(self, deal: LinkDeal) -> None:
        """Carry each old unit's fence into all target partitions that it may have written, by whatever file: the next
        unit there knows of no such writer. Raises LinkNotCut where one takes no marker now.
        """
        old = self.old
        written_by = [
            {TopicPartition(old.target_topic(topic), number) for topic, number in positions(self.parts[unit])}
            for unit in range(old.unit_count)
        ]
        # By their names, too: a cluster leaves out of its list what one may not describe, as if it were gone.
        topics, failures = await list_each_topic(self.target, {at.topic for written in written_by for at in written})
        left_out: dict[TopicPartition, ClientError] = {}
        for unit, written in enumerate(written_by):
            link = _part(old, unit)
            left_out |= {where: failures[where.topic] for where in written if where.topic in failures}
            wanted = sorted({*_there(written, topics), *writable_of(link, topics)})
            found = await fence_link(self.target, link, wanted, since=self.claims[unit].owner.writer)
            self.logs[unit] = self.logs[unit].of(found.writer)
            left_out |= found.left_out
        if left_out:
            await self.release(old, deal)
            raise _not_fenced(old, left_out)

    async def carry(self, new: Link) -> None:
        """Write what is said of each partition that changes its unit into the next one's part, behind what an earlier
        cut may have left there.
        """
        old = self.old
        await self._write({unit: strangers(old, part) for unit, part in self.parts.items()})
        await self._write(carried(old, new, self.parts))
        await self._write(pauses(old, new, self.parts))

    async def say(self, deal: LinkDeal) -> None:
        """In unit 0's part: from here on it counts."""
        await self.logs[0].append([deal])

    async def release(self, cut: Link, deal: LinkDeal) -> None:
        """Say the deal in each part, take back what it has of other units' partitions, and let the link run, unless a
        person wants it to be paused.

        Who pauses a topic meanwhile, or resumes it, writes to the units that he knows of, unit 0 first, and looks then
        how the link is cut: what he saw no reason to say again stands there by now.
        """
        self.parts[0] = await read_part(self.target, _part(cut, 0))
        await self._write(pauses_of_lead(cut, self.parts))
        await self._write({unit: strangers(cut, part) for unit, part in self.parts.items()})
        assert self.stop is not None, "it is paused"
        run = replace(self.stop, state=RunState.RUNNING) if is_of_cut(self.stop) else self.stop
        for log, claim in zip(self.logs, self.claims, strict=True):
            await log.append([deal, run, claim.owner])

    async def _write(self, changes: Mapping[int, Sequence[Carried]]) -> None:
        for unit, some in changes.items():
            await self.logs[unit].append(some)
        take_over(self.parts, changes)


def _there(wanted: Iterable[TopicPartition], topics: Mapping[str, Topic]) -> list[TopicPartition]:
    """Those that the target has (still)."""
    return [
        where for where in wanted if where.topic in topics and where.partition < len(topics[where.topic].partitions)
    ]


def _not_fenced(link: Link, left_out: Mapping[TopicPartition, ClientError]) -> LinkNotCut:
    places = ", ".join(f"{where} ({why})" for where, why in sorted(left_out.items())[:FENCE_AWAITS_NAMED_MAX])
    text = (
        f"link {link.name} goes on as it was cut: {len(left_out)} partitions of {link.target.name} take no marker now"
    )
    return LinkNotCut(f"{text}: {places}")
