"""What can go wrong at the composition root.

DeployError
├── ConfigError       the configuration file cannot be used (exit 2)
├── DemoDataMissing   the demo's data package is not installed
└── DemoFailed        a step of the demo did not do what it promises
    └── ServiceDied   a broker or the mirror of the demo ended by itself
"""

from __future__ import annotations

from broker.base.errors import FarshoreError


class DeployError(FarshoreError):
    """Root of this folder's errors."""


class ConfigError(DeployError):
    """farshore.toml is missing, unreadable, or says something that cannot be."""


class DemoDataMissing(DeployError):
    """The package that carries the demo's flights is not installed."""


class DemoFailed(DeployError):
    """A step of the demo found something other than what farshore promises."""


class ServiceDied(DemoFailed):
    """A service of the demo ended by itself: whatever else failed, failed because of it."""
