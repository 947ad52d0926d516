"""Messages as values: compared and shown by their fields, as any dataclass."""

from __future__ import annotations

import pytest

from broker.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse


def test_messages_are_equal_where_class_and_every_field_are() -> None:
    answer = FindCoordinatorResponse(node_id=1, coordinators=[Coordinator("g", 1)])
    assert answer == FindCoordinatorResponse(node_id=1, coordinators=[Coordinator("g", 1)])
    assert answer != FindCoordinatorResponse(node_id=2, coordinators=[Coordinator("g", 1)])
    assert answer != FindCoordinatorResponse(node_id=1, coordinators=[Coordinator("g", 2)])
    assert FindCoordinatorRequest() != FindCoordinatorResponse()


def test_messages_change_and_are_no_keys() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(FindCoordinatorRequest("g"))


def test_a_message_shows_each_field() -> None:
    shown = repr(FindCoordinatorRequest("g", 1, ["a"]))
    assert shown == "FindCoordinatorRequest(key='g', key_type=1, coordinator_keys=['a'])"
