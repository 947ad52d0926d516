"""The form of the page by what is asked for."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, Gauge

from broker.http.registry import page_of

OPEN_METRICS, TEXT = "application/openmetrics-text", "text/plain; version=0.0.4; charset=utf-8"


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("", TEXT),
        ("text/plain;version=x", TEXT),
        (f"{OPEN_METRICS};version=x", TEXT),
        (f"{OPEN_METRICS};version=1.0.0", f"{OPEN_METRICS}; version=1.0.0"),
    ],
)
def test_whatever_is_accepted_the_page_is_shown(accept: str, content_type: str) -> None:
    registry = CollectorRegistry()
    Gauge("up", "Whether it is up", registry=registry).set(1)
    page = page_of(registry)(accept, ())
    assert page.content_type.startswith(content_type)
    assert b"up 1.0" in page.body
