"""The page of a registry of Prometheus metrics."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from broker.http.face import Page, Render


def page_of(registry: CollectorRegistry) -> Render:
    """In the form that is accepted: the text format, also for what cannot be read, or OpenMetrics."""

    def render(accept: str, names: Sequence[str]) -> Page:
        try:
            encode, content_type = choose_encoder(accept)
        except (ValueError, TypeError):  # a version that is none
            encode, content_type = choose_encoder("")
        return Page(content_type, encode(registry.restricted_registry(names) if names else registry))

    return render
