"""What can go wrong with what is shown over HTTP.

FaceError
├── FaceOpen        whoever reaches the address would be let in
└── ListenFailed    the address is taken, or is not this machine's
"""

from __future__ import annotations

from broker.base.errors import FarshoreError


class FaceError(FarshoreError):
    """Nothing is shown over HTTP."""


class FaceOpen(FaceError):
    """The address is not of this machine alone, and nobody who comes would be asked for anything."""

    hint = (
        "listen on 127.0.0.1, or give a token (token_file, token_env or token_command) or client_ca_file with "
        "certificate_file beside listen: docs/security.md"
    )


class ListenFailed(FaceError):
    """The address for /metrics is taken, or does not belong to this machine."""
