"""What one who has not shown yet who he is can cost."""

from __future__ import annotations

from typing import Final

KIB: Final = 1024

CONNECTIONS_MAX: Final = 64
"""Of those who have not shown who they are, and as many of those who have. Each asks for one page, and is closed behind
it; for one more another goes.
"""
HEAD_BYTES_MAX: Final = 16 * KIB
"""Of a request, which has no body."""
REQUEST_MS: Final = 10 * 1000
"""Within it hands of TLS are shaken; and then a request is there."""
ANSWER_MS: Final = 30 * 1000
"""Within it the answer was taken."""
REFUSED_MS: Final = 100
"""So much later than it is known a wrong token is answered."""
TOKEN_KEPT_MS: Final = 5 * 1000
"""How long a token counts before it is read anew, so that those who guess start no programs."""
