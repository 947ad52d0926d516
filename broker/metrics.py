"""What a broker shows of itself for Prometheus: who is connected, and who was kept out or held back.

Labels are of Kafka's words, of which there are few: never a principal, an address or a client id, of which those who
come make any number.
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from broker.server import Server

PREFIX = "farshore_broker"


class BrokerCollector(Collector):
    """Reads copies: it is asked in another thread than counts."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def collect(self) -> Iterable[Metric]:
        server = self._server
        # Of lists that are made in one step, as what they are made from changes meanwhile.
        connections = list(server.connections)
        yield _gauge("connections", "Connections that stand.", sum(not one.closed for one in connections))
        strangers = sum(one.is_stranger and not one.closed for one in connections)
        yield _gauge("connections_unauthenticated", "Of those, that have to log in and have not.", strangers)
        refused = {(limit,): count for limit, count in server.refused.copy().items()}
        yield _counter(
            "connections_refused", "Connections that were closed at once, by limit.", ("limit",), refused.items()
        )
        failed = server.failed_logins.counts.copy()
        what = "Logins and TLS handshakes that failed, by mechanism (SSL: TLS) and reason."
        yield _counter("failed_authentications", what, ("mechanism", "reason"), failed.items())
        authorizer = server.broker.acls.authorizer
        denied = {} if authorizer is None else authorizer.denials.counts.copy()
        what = "Requests for which a right was missing, by Kafka's operation and type of resource."
        yield _counter("authorization_denials", what, ("operation", "resource_type"), denied.items())
        throttles = server.broker.quotas.throttles.copy()
        counts = {(str(key),): count for key, (count, _) in throttles.items()}
        yield _counter(
            "quota_throttles", "Requests and connections that a quota held back.", ("quota",), counts.items()
        )
        held_s = {(str(key),): held_ms / 1000 for key, (_, held_ms) in throttles.items()}
        yield _counter("quota_throttle_seconds", "For how long it held them back in all.", ("quota",), held_s.items())


def _gauge(name: str, what: str, value: float) -> Metric:
    return GaugeMetricFamily(f"{PREFIX}_{name}", what, value=value)


def _counter(name: str, what: str, labels: tuple[str, ...], values: Iterable[tuple[tuple[str, ...], float]]) -> Metric:
    family = CounterMetricFamily(f"{PREFIX}_{name}", what, labels=labels)
    for key, value in sorted(values):
        family.add_metric(key, value)
    return family


def broker_registry(server: Server) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(BrokerCollector(server))
    return registry
