"""The root of every error that farshore raises.

FarshoreError
├── WireError          broker/wire/errors.py     bytes that are not the Kafka protocol
├── ClientError        broker/client/errors.py   talking to a cluster
├── BrokerError        broker/errors.py          a request that is answered with an error code
├── AddressInvalid     broker/base/address.py    text that is no host:port
├── AccessInvalid      broker/base/reloaded.py   files of certificates or users that cannot be taken
├── FaceError          broker/http/errors.py     what is shown over HTTP cannot be
├── MirrorError        mirror/errors.py
├── FailoverError      failover/errors.py
├── MonitoringError    monitoring/errors.py
├── ChaosError         chaos/errors.py
└── DeployError        deploy/errors.py
"""

from __future__ import annotations


class FarshoreError(Exception):
    """What went wrong in one line; `hint` is the next step, `retriable` whether the same call may succeed later."""

    retriable: bool = False
    hint: str = ""

    def __init__(self, message: str = "", hint: str | None = None) -> None:
        super().__init__(message)
        if hint is not None:
            self.hint = hint


def first_of(error: BaseException) -> BaseException:
    """`error` as it is; of a group, however deep, its first error: task groups wrap also what a caller expects."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
