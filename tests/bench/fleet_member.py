"""A member of a fleet that holds what is planned for it and moves nothing: what coordination alone costs.

`python -m tests.bench.fleet_member ETCD NAME UNITS`; each unit says that it moves as much as before all the time, as
under steady traffic.
"""

from __future__ import annotations

import asyncio
import sys

from broker.base.address import parse_address
from broker.base.clock import SystemClock
from mirror.coordinator.current import Current
from mirror.coordinator.model import Meter, Unit
from mirror.coordinator.serving import serve_shares
from mirror.fleet.etcd.store import open_etcd
from mirror.fleet.member import FleetCoordinator
from mirror.fleet.settings import FleetAccess, FleetSettings
from tests.bench.fleet_peers import PREFIX
from tests.mirror.fleet.workers import offer_of, untold

COUNT_EVERY_S = 1.0
RECORDS_PER_S = 100
RECORD_BYTES = 1024


async def hold(address: str, name: str, units: int) -> None:
    """Until it is ended."""
    clock = SystemClock()
    access = FleetAccess((parse_address(address),), FleetSettings(prefix=PREFIX))
    meters: dict[Unit, Meter] = {}
    async with open_etcd(access, clock) as store:
        offer = Current(offer_of([f"link-{number:05}" for number in range(units)]))
        async with FleetCoordinator(store, name, offer, clock, untold, access.settings).member() as member:

            async def run_unit(unit: Unit) -> None:
                meters[unit] = member.meter(unit)
                try:
                    await member.permit(unit).wait(is_prepared=True)
                    await asyncio.Event().wait()
                finally:
                    del meters[unit]

            async def count() -> None:
                while True:
                    await clock.sleep(COUNT_EVERY_S)
                    for meter in meters.values():
                        meter.acknowledged_records += RECORDS_PER_S
                        meter.acknowledged_bytes += RECORDS_PER_S * RECORD_BYTES
                        meter.lag_offsets = 0

            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(count())
                tasks.create_task(serve_shares(member, run_unit))


if __name__ == "__main__":
    asyncio.run(hold(sys.argv[1], sys.argv[2], int(sys.argv[3])))
