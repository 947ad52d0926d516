"""File descriptors: each partition needs one for as long as the broker runs, each more segment and each client another.

The limit is the process's own (RLIMIT_NOFILE). Some are kept back for what must not fail half-way: rolled segments,
compaction, files that are replaced.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path
from typing import Final

from broker.errors import BrokerError
from broker.limits import DESCRIPTORS_KEPT, DESCRIPTORS_KEPT_FROM_SEGMENTS
from broker.wire.errors import ErrorCode

_OPEN_FILES: Final = Path("/proc/self/fd" if sys.platform == "linux" else "/dev/fd")


class TooFewDescriptors(BrokerError):
    """Kafka has no code for this one: that of a request which the broker's own rules forbid is not sent again."""

    error_code = ErrorCode.POLICY_VIOLATION
    hint = "raise the limit of open files (ulimit -Hn, LimitNOFILE= of the service) and start the broker again"


def raise_soft_limit() -> None:
    """To the hard limit, as the JVM does for Kafka: soft limits are often 1024, for programs that use select()."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            # Some systems (macOS) call the hard limit infinite and allow less; what is needed is checked later.
            return


def limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def require(count: int, what: str) -> None:
    """Raises TooFewDescriptors unless `count` more files can be open beside those that are, and some be kept back."""
    most, used = limit(), len(os.listdir(_OPEN_FILES))
    if used + count + DESCRIPTORS_KEPT > most:
        raise TooFewDescriptors(
            f"{what}: {count} files to open, {used} are, {DESCRIPTORS_KEPT} are kept back, and the limit is {most}"
        )


def few_are_left() -> bool:
    """Whether a new segment would take one of the last."""
    try:
        fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return True
    os.close(fd)
    return fd >= limit() - DESCRIPTORS_KEPT_FROM_SEGMENTS


def nearly_all_used(fd: int) -> bool:
    """Whether `fd`, which was just opened, is one of those that are kept back: the lowest free number is given."""
    return fd >= limit() - DESCRIPTORS_KEPT
