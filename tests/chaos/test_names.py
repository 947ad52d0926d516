"""Only what a run made is a run's. Pure."""

from __future__ import annotations

import pytest

from broker.client.site import Site
from chaos.names import (
    folder_of,
    link_of,
    new_run_id,
    proxy_of,
    run_of_folder,
    run_of_proxy,
    run_of_topic,
    topic_of,
)
from mirror.link import Link, TopicNames

EAST, WEST = Site("east", "e:1"), Site("west", "w:1")


@pytest.mark.parametrize("topic_names", ["same", "prefixed"])
def test_all_that_a_run_makes_is_known_as_its_own(topic_names: TopicNames) -> None:
    run_id = new_run_id()
    link = Link(link_of(run_id), EAST, WEST, (topic_of(run_id),), topic_names)
    for topic in (topic_of(run_id), link.target_topic(topic_of(run_id)), link.state_topic, link.ends_topic):
        assert run_of_topic(topic) == run_id
    assert run_of_proxy(proxy_of(run_id, 12)) == run_id
    assert run_of_folder(folder_of(run_id)) == run_id
    assert link.selects_topic(topic_of(run_id))


@pytest.mark.parametrize(
    "name",
    [
        "farshore-chaos-0123abcd",
        "__farshore-chaos-",
        "__farshore-chaos-0123abc",
        "__farshore-chaos-0123abcde",
        "__farshore-chaos-0123ABCD",
        "__farshore-chaos-0123abcd-mine",
        "my__farshore-chaos-0123abcd",
        "a.b.__farshore-chaos-0123abcd",
        "__farshore-offsets-chaos-0123abcd",
        "__farshore-offsets-east-west",
        "__farshore-ends-east-west",
        "__farshore-canary-farshore-chaos-0123abcd",
        "0123abcd",
    ],
)
def test_nobody_elses_topic_is_a_runs(name: str) -> None:
    assert run_of_topic(name) is None


def test_nobody_elses_proxy_or_folder_is_a_runs() -> None:
    for name in ("farshore-0123abcd-0", "farshore-chaos-0123abcd", "farshore-chaos-0123abcd-x", "somebody-elses"):
        assert run_of_proxy(name) is None
    for name in ("farshore-chaos-x8s9d7f6", "farshore-chaos-0123abcd-0", "farshore-demo-0123abcd"):
        assert run_of_folder(name) is None


@pytest.mark.parametrize("topic", [".*", "__.*", ".*chaos.*", r".*\\.__farshore-chaos-.*"])
@pytest.mark.parametrize("topic_names", ["same", "prefixed"])
def test_no_other_link_copies_a_runs_topic(topic: str, topic_names: TopicNames) -> None:
    link = Link("all", EAST, WEST, (topic,), topic_names)
    assert not link.selects_topic(topic_of("0123abcd"))
    assert not link.selects_topic(f"west.{topic_of('0123abcd')}")
    assert not link.selects_topic(f"north.{topic_of('0123abcd')}")
