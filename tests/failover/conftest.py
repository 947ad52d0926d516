"""The event loop of these tests."""

from __future__ import annotations

from tests.on_uvloop import pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories"]
