"""What servers that tests start say of themselves when they fail."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.interop import servers
from tests.interop.servers import FarshoreBroker, ServerFailed


class StandsStill(FarshoreBroker):
    def command(self) -> Sequence[str]:
        return [sys.executable, "-c", "def busy():\n    while True: pass\nbusy()"]


def test_a_broker_that_stands_still_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "START_TIMEOUT_S", 1)
    with pytest.raises(ServerFailed, match=r"(?s)to serve.*in busy"), StandsStill(tmp_path):
        pass
