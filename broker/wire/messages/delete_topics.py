"""DeleteTopics (API 20): v6 can name a topic by its id."""

from __future__ import annotations

import uuid as uuids

from broker.wire.schema import Kind, Message, Struct, array, int16, int32, message, string, struct, uuid


@struct
class DeleteTopicState(Struct):
    name: str | None = string(default=None, since=6, nullable=6)
    topic_id: uuids.UUID = uuid(since=6)


@message(key=20, versions=(1, 6), flexible=4)
class DeleteTopicsRequest(Message):
    topics: list[DeleteTopicState] = array(DeleteTopicState, since=6)
    topic_names: list[str] = array(Kind.STRING, until=5)
    timeout_ms: int = int32()


@struct
class DeletableTopicResult(Struct):
    name: str | None = string(nullable=6)
    topic_id: uuids.UUID = uuid(since=6)
    error_code: int = int16()
    error_message: str | None = string(default=None, since=5, nullable=5)


@message(key=20, versions=(1, 6), flexible=4)
class DeleteTopicsResponse(Message):
    throttle_time_ms: int = int32()
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)
