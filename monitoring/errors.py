"""What can go wrong while watching a mirror.

MonitoringError
├── AuditError
│   ├── SparkMissing          pyspark or Java is not installed
│   ├── SparkFailed           Spark started, and a job of it failed
│   ├── ReadRefused           a site did not let Spark read
│   ├── SiteLost              a site stopped to answer while it was read
│   ├── DigestsUnusable       a site's digests are missing, incomplete, or not of this run's plan
│   ├── NothingToCompare      no partition of the link could be compared: never the same as "equal"
│   ├── AuditResultDamaged    the stored result of an earlier audit cannot be read
│   ├── RepairStopped         what differs is not repaired further: something is in the way
│   └── RepairUnfinished      the repair goes on, and was not done in time
└── CanaryError
    └── CanaryNotMirrored     the canary's topic does not arrive at the target
"""

from __future__ import annotations

from broker.base.errors import FarshoreError


class MonitoringError(FarshoreError):
    """Root of this folder's errors. `hint` says what to do next, with a command where there is one."""


class AuditError(MonitoringError):
    """The audit could not be carried out; it says nothing about the copies."""


class SparkMissing(AuditError):
    """Spark's Python package or a Java runtime is missing."""


class SparkFailed(AuditError):
    """A Spark job failed, for example because a broker went away while it was read."""

    retriable = True


class ReadRefused(AuditError):
    """A right to read went while Spark read. Java does not say at which site."""


class SiteLost(AuditError):
    """A site does not answer any more in the middle of an audit."""

    retriable = True


class DigestsUnusable(AuditError):
    """A plan, or what a site's own job left of it, is missing, incomplete or of another run: nothing is compared."""


class NothingToCompare(AuditError):
    """Not one partition of the link could be compared; the reasons are in the message."""


class AuditResultDamaged(AuditError):
    """The stored summary of an earlier audit run is not what this version writes."""


class RepairStopped(AuditError):
    """Something is in the way of a repair. What is asked of the mirror stands, and no old copy goes before its time."""


class RepairUnfinished(AuditError):
    """The mirror was asked, and has not sent all again in time; the same command goes on from there."""

    retriable = True


class CanaryError(MonitoringError):
    """The canary could not run."""


class CanaryNotMirrored(CanaryError):
    """The canary's topic did not appear at the target in time."""

    retriable = True
