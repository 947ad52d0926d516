"""What one who has not shown yet who he is can cost."""

from __future__ import annotations

from typing import Final

from broker.base.server_tls import HandshakeLimits

KIB: Final = 1024

CONNECTIONS_MAX: Final = 64
"""At once; more are closed. Each asks for one page, and is closed behind it."""
HEAD_BYTES_MAX: Final = 16 * KIB
"""Of a request, which has no body."""
REQUEST_MS: Final = 10 * 1000
"""Within it a request is there, from the first byte on."""
ANSWER_MS: Final = 30 * 1000
"""Within it the answer was taken."""
REFUSED_MS: Final = 100
"""So much later than it is known a wrong token is answered."""
TOKEN_KEPT_MS: Final = 5 * 1000
"""How long a token counts before it is read anew, so that those who guess start no programs."""
HANDSHAKES: Final = HandshakeLimits(at_once_max=CONNECTIONS_MAX, each_ms=REQUEST_MS, told_ms=60 * 1000)
