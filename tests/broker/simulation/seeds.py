"""The seeds of whole brokers under faults."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from tests.broker.simulation.story import Story
from tests.broker.worlds import Worlds


def _story(seed: int, folder: Path) -> Story:
    # Brokers under faults complain, and what they say is looked at nowhere.
    logging.disable(logging.ERROR)
    return Story(seed, folder)


WORLDS: Final = Worlds("CLUSTER", _story, "tests/broker/simulation")
