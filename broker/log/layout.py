"""File names inside a partition's directory. Offsets are in the name, 20 digits, as in Kafka."""

import os
import re
import uuid
from pathlib import Path

from broker.log.disk import Disk

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
# A compaction's output: `.cleaned` is thrown away at start; `.swap` is whole and is put in place at start
# (compaction.py).
CLEANED = ".cleaned"
SWAP = ".swap"

# What a start cut off the log because it cannot belong to it; kept for whoever repairs it, never read again.
DAMAGED = ".damaged"

# A partition's directory while it is being removed; one found at start is the rest of a removal that a crash cut short.
DELETED = "-delete"

# A partition's directory that no order of the controller names: kept until the metadata has it again, or somebody
# removes it. As in Kafka.
STRAY = "-stray"
NAME_CHARS_MAX = 255

LEADER_EPOCHS = "leader-epoch-checkpoint"
LOG_START = "log-start-offset"
RECOVERY_POINT = "recovery-point-offset-checkpoint"
CLEANER = "cleaner-offset-checkpoint"
# Segments that begin before this may lack offsets, as their leader's do (replicated.py).
GAPS = "replicated-gaps-checkpoint"
CLEAN_SHUTDOWN = "clean-shutdown"

_LOG_FILE = re.compile(rf"{re.escape(LOG)}($|\.)")
_CHECKPOINTS = frozenset({LEADER_EPOCHS, LOG_START, RECOVERY_POINT, CLEANER, GAPS, CLEAN_SHUTDOWN})


def holds_a_log(directory: Path) -> bool:
    """False for a folder without any file of a log: there is nothing to recover."""
    return any(name[:20].isdigit() or name in _CHECKPOINTS for name in os.listdir(directory))


def holds_records(directory: Path) -> bool:
    """Also where that is not known."""
    try:
        return any(
            name[:20].isdigit()
            and _LOG_FILE.search(name)
            and (int(name[:20]) > 0 or (directory / name).stat().st_size > 0)
            for name in os.listdir(directory)
        )
    except OSError:
        return True


def retire(directory: Path, disk: Disk) -> Path:
    """Takes the directory's name away; under the new one it may be removed at any time. Raises OSError."""
    doomed = directory.with_name(f"{uuid.uuid4().hex}{DELETED}")
    disk.replace(directory, doomed)
    return doomed


def file_at(directory: Path, offset: int, suffix: str) -> Path:
    return directory / f"{offset:020d}{suffix}"


def offsets_of(directory: Path, suffix: str) -> list[int]:
    """Ascending offsets of the files `<20 digits><suffix>`; other names are not ours and are left alone."""
    found = []
    # No Path of each: where all partitions start these names are read half a dozen times for each.
    for name in os.listdir(directory):
        stem = name[: -len(suffix)]
        if name.endswith(suffix) and len(stem) == 20 and stem.isdigit():
            found.append(int(stem))
    return sorted(found)
