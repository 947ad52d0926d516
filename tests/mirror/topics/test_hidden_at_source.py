"""Topics that a link names, and that its source hides from the mirror."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from broker.client.topics import describe_each_topic, list_topics
from broker.wire.errors import ErrorCode
from mirror.topics.sync import look_at_topics
from tests.failover.freezing.test_hidden_topics import GONE, HIDDEN, SEEN, hiding


async def test_what_a_link_names_and_its_source_hides_is_told(tmp_path: Path) -> None:
    """It was left out as if it were not there. What is not there is no error, and is not made by the question."""
    async with hiding(tmp_path) as there:
        link = replace(there.link, topics=(SEEN, HIDDEN, GONE))
        for described in (None, await describe_each_topic(there.limited)):
            seen = await look_at_topics(link, there.limited, there.owner, described)
            assert seen.source.keys() == {SEEN}
            assert {name: error.code for name, error in seen.source_failures.items()} == {
                HIDDEN: ErrorCode.TOPIC_AUTHORIZATION_FAILED
            }
        assert GONE not in await list_topics(there.owner)


async def test_what_an_expression_would_select_stays_hidden(tmp_path: Path) -> None:
    async with hiding(tmp_path) as there:
        seen = await look_at_topics(replace(there.link, topics=(".*",)), there.limited, there.owner)
        assert seen.source.keys() == {SEEN}
        assert not seen.source_failures
