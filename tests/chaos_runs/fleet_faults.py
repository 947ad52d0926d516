"""What can happen to a fleet: each fault waits until it shows at etcd, and takes back what it did."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable

from tests.chaos_runs.fleet_stage import LEASE_S, FleetStage, Key, etcd_leader

Fault = Callable[[FleetStage, random.Random, str], None]
"""Of a worker that holds something. Blocks. AssertionError where it does not show."""


def kill(stage: FleetStage, _chance: random.Random, holder: str) -> None:
    """kill -9; another worker is started in its place when its links are taken."""
    units = stage.units_of(holder)
    stage.kill(holder)
    _until_taken(stage, units, holder)
    stage.start_worker()


def zombie(stage: FleetStage, chance: random.Random, holder: str) -> None:
    """SIGSTOP past the lease; it wakes when others run what it was about to write."""
    units = stage.units_of(holder)
    stage.signal(holder, signal.SIGSTOP)
    try:
        _until_taken(stage, units, holder)
        time.sleep(chance.uniform(0.0, 1.5))  # the successor is about to open, or opens, or writes
    finally:
        stage.signal(holder, signal.SIGCONT)


def nap(stage: FleetStage, chance: random.Random, holder: str) -> None:
    """SIGSTOP for about as long as the lease: who is first is open."""
    stage.signal(holder, signal.SIGSTOP)
    try:
        time.sleep(chance.uniform(0.5 * LEASE_S, 1.5 * LEASE_S))
    finally:
        stage.signal(holder, signal.SIGCONT)


def cut(stage: FleetStage, chance: random.Random, holder: str) -> None:
    """Its ways to all of etcd; it reaches both sites, and writes on until its successor's fence."""
    units = stage.units_of(holder)
    proxies = stage.proxies[stage.slot(holder)]
    for proxy in proxies:
        proxy.disable()
    try:
        _until_taken(stage, units, holder)
        time.sleep(chance.uniform(0.0, 2.0))
    finally:
        for proxy in proxies:
            proxy.enable()


def revoke(stage: FleetStage, _chance: random.Random, holder: str) -> None:
    """Its lease ends at etcd in mid-produce, and it learns of that like all others."""
    units = stage.units_of(holder)
    lease_id = stage.keys("workers/")[holder].lease_id
    stage.etcd.servers[0].revoke(lease_id)
    _until_taken(stage, units, "")


def two_leaders(stage: FleetStage, chance: random.Random, _holder: str) -> None:
    """The worker that plans for all sleeps until another one plans; it wakes and believes to lead still."""
    before = stage.fleet_leader()
    stage.signal(before, signal.SIGSTOP)
    try:
        stage.until(lambda: stage.fleet_leader() != before, "another worker to lead")
        time.sleep(chance.uniform(0.0, 0.5))
    finally:
        stage.signal(before, signal.SIGCONT)


def etcd_leader_kill(stage: FleetStage, chance: random.Random, _holder: str) -> None:
    """kill -9 of the server that leads etcd."""
    leader = stage.etcd.leader()
    leader.stop()
    try:
        stage.until(lambda: etcd_leader(stage.etcd, leader) is not None, "etcd to have another leader")
        time.sleep(chance.uniform(0.0, LEASE_S))
    finally:
        leader.start()


def etcd_two_leaders(stage: FleetStage, chance: random.Random, _holder: str) -> None:
    """etcd's leader sleeps until there is another one; it wakes, and grants and renews for a moment."""
    leader = stage.etcd.leader()
    leader.signal(signal.SIGSTOP)
    try:
        stage.until(lambda: etcd_leader(stage.etcd, leader) is not None, "etcd to have another leader")
        time.sleep(chance.uniform(0.0, LEASE_S))
    finally:
        leader.signal(signal.SIGCONT)


def etcd_away(stage: FleetStage, chance: random.Random, _holder: str) -> None:
    """Two of three servers: nobody can be certain of anything."""
    gone = chance.sample(stage.etcd.servers, 2)
    for server in gone:
        server.stop()
    try:
        time.sleep(chance.uniform(0.5, 2.5 * LEASE_S))
    finally:
        for server in gone:
            server.launch()
        for server in gone:
            server.wait_healthy()


def drain(stage: FleetStage, _chance: random.Random, holder: str) -> None:
    """As an operator does, and back."""
    for command in (("drain", holder, "--yes", "--timeout", "30s"), ("undrain", holder, "--yes")):
        said = stage.farshore("fleet", *command)
        assert not said.code, f"fleet {' '.join(command)}: {said.err.strip()[-300:]}"


def restart(stage: FleetStage, _chance: random.Random, holder: str) -> None:
    """SIGTERM, and another worker in its place."""
    stage.stop(holder)
    stage.start_worker()


FAULTS: dict[str, Fault] = {
    "kill": kill,
    "zombie": zombie,
    "nap": nap,
    "cut": cut,
    "lease-revoked": revoke,
    "two-leaders": two_leaders,
    "etcd-leader-kill": etcd_leader_kill,
    "etcd-two-leaders": etcd_two_leaders,
    "etcd-away": etcd_away,
    "drain": drain,
    "restart": restart,
}
WEIGHTS = {"kill": 3, "zombie": 3, "cut": 2, "lease-revoked": 2}


def _until_taken(stage: FleetStage, units: dict[str, Key], but: str) -> None:
    """Until each is held under a later epoch, by another worker than that."""

    def is_taken() -> bool:
        held = stage.held()
        return all(
            unit in held and held[unit].created > key.created and held[unit].value != but for unit, key in units.items()
        )

    stage.until(is_taken, f"others to hold {', '.join(units)}")
