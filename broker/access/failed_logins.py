"""How often somebody was not let in, by how he came and by why: what is counted for metrics."""

from __future__ import annotations

import ssl
from enum import StrEnum
from typing import Final

BY_TLS: Final = "SSL"
"""In place of a mechanism: who failed at TLS."""
NO_MECHANISM: Final = "none"
"""Who had named none yet that is offered."""


class LoginFailure(StrEnum):
    """Each is one of few, whatever clients send."""

    CREDENTIALS = "credentials"
    """A user who is not known, or a wrong password: which of them is told to nobody. Or a token that does not hold."""
    MALFORMED = "malformed"
    """What was sent is not of the mechanism."""
    MECHANISM = "mechanism"
    """One that is not offered."""
    OUT_OF_TURN = "out_of_turn"
    """Another request than a login has there: a client without a login, for instance."""
    TIMEOUT = "timeout"
    """No login came in time."""
    SESSION = "session"
    """A session, or the token that it was begun by, was over, and no new login came, or one of somebody else."""
    CERTIFICATE = "certificate"
    """TLS: one that is missing, or that the CA of clients did not sign."""
    HANDSHAKE = "handshake"
    """TLS: anything else that was said, and is no TLS that both speak. Who hangs up in silence is not counted."""


class FailedLogins:
    """Of all listeners of a broker, since its start."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str], int] = {}
        """By mechanism and reason."""

    def note(self, mechanism: str | None, reason: LoginFailure) -> None:
        key = (mechanism or NO_MECHANISM, str(reason))
        self.counts[key] = self.counts.get(key, 0) + 1

    def note_tls(self, error: ssl.SSLError) -> None:
        is_his = error.reason in ("PEER_DID_NOT_RETURN_A_CERTIFICATE", "CERTIFICATE_VERIFY_FAILED")
        self.note(BY_TLS, LoginFailure.CERTIFICATE if is_his else LoginFailure.HANDSHAKE)
