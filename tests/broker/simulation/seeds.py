"""The seeds of whole brokers under faults."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from tests.broker.simulation.aimed import ControllersDeposed, DisksFull, SessionsEnd, StatesPutBack
from tests.broker.simulation.story import Story
from tests.broker.worlds import Worlds


def _story(seed: int, folder: Path, kind: type[Story] = Story) -> Story:
    # Brokers under faults complain, and what they say is looked at nowhere.
    logging.disable(logging.ERROR)
    return kind(seed, folder)


def _sessions_end(seed: int, folder: Path) -> Story:
    return _story(seed, folder, SessionsEnd)


def _controllers_deposed(seed: int, folder: Path) -> Story:
    return _story(seed, folder, ControllersDeposed)


def _states_put_back(seed: int, folder: Path) -> Story:
    return _story(seed, folder, StatesPutBack)


def _disks_full(seed: int, folder: Path) -> Story:
    return _story(seed, folder, DisksFull)


TESTS: Final = "tests/broker/simulation"
WORLDS: Final = Worlds("CLUSTER", _story, TESTS)
SESSIONS_END: Final = Worlds("CLUSTER_SESSIONS", _sessions_end, TESTS)
CONTROLLERS_DEPOSED: Final = Worlds("CLUSTER_CONTROLLERS", _controllers_deposed, TESTS)
STATES_PUT_BACK: Final = Worlds("CLUSTER_STATES", _states_put_back, TESTS)
DISKS_FULL: Final = Worlds("CLUSTER_DISKS", _disks_full, TESTS)
