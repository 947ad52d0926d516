"""The page of a registry of Prometheus metrics."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from broker.http.face import Page, Render


def page_of(registry: CollectorRegistry) -> Render:
    """In the form that is accepted: the text format, or OpenMetrics."""

    def render(accept: str, names: Sequence[str]) -> Page:
        encode, content_type = choose_encoder(accept)
        return Page(content_type, encode(registry.restricted_registry(names) if names else registry))

    return render
