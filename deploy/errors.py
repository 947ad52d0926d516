"""What can go wrong at the composition root.

DeployError
├── ConfigError         the configuration file cannot be used (exit 2)
├── AlreadyRuns         brokers of a cluster on this machine run, which was to be started
├── PortTaken           another program listens where a cluster on this machine would
├── ServiceFailed       a process on this machine did not start, or not in time
│   └── ServiceDied     a process on this machine ended by itself
├── DemoDataMissing     the demo's data package is not installed
└── DemoFailed          a step of the demo did not do what it promises
"""

from __future__ import annotations

from broker.base.errors import FarshoreError


class DeployError(FarshoreError):
    """Root of this folder's errors."""


class ConfigError(DeployError):
    """farshore.toml is missing, unreadable, or says something that cannot be."""


class AlreadyRuns(DeployError):
    """A broker of the cluster that was to be started on this machine runs."""


class PortTaken(DeployError):
    """A port of this machine that a broker or ZooKeeper was to listen on is another program's."""


class ServiceFailed(DeployError):
    """A broker, ZooKeeper or mirror that was started on this machine does not serve."""

    hint = "read its log, whose end is shown; it may lack memory, disk or a port"


class ServiceDied(ServiceFailed):
    """A broker, ZooKeeper or mirror on this machine ended by itself: whatever else failed, failed because of it."""


class DemoDataMissing(DeployError):
    """The package that carries the demo's flights is not installed."""


class DemoFailed(DeployError):
    """A step of the demo found something other than what farshore promises."""
