"""DeleteTopics, v1-6: the topic, its records and its committed offsets. v5 error texts; v6 a topic may be named by
its id.
"""

from __future__ import annotations

from broker.access.authorizer import NotAuthorized, Rights
from broker.broker import Broker
from broker.errors import BrokerError
from broker.handlers.handler import Handler, RequestContext, controller_for
from broker.topics.errors import InvalidTopicRequest
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from broker.wire.schema import ZERO_UUID
from broker.wire.vocabulary import AclOperation, AclResource


async def handle(broker: Broker, request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    asked = request.topics if context.api_version >= 6 else [DeleteTopicState(name) for name in request.topic_names]
    by_name: dict[object, list[DeleteTopicState]] = {}
    for state in asked:
        by_name.setdefault(_meant(broker, state, context.rights), []).append(state)
    responses = []
    for states in by_name.values():
        only = len(states) == 1
        responses.append(await _delete(broker, states[0], request.timeout_ms, context) if only else _refuse(states))
    return DeleteTopicsResponse(responses=responses)


def _meant(broker: Broker, asked: DeleteTopicState, rights: Rights) -> object:
    """What tells a topic from the others of the request, however it is named; who may not see it is not told by that
    which name an id has.
    """
    found = None if asked.topic_id == ZERO_UUID else broker.view.by_id(asked.topic_id)
    if found is None or not rights.may(AclOperation.DESCRIBE, AclResource.TOPIC, found.name, quietly=True):
        return asked.name or asked.topic_id
    return asked.name or found.name


def _refuse(asked: list[DeleteTopicState]) -> DeletableTopicResult:
    name = next((state.name for state in asked if state.name is not None), None)
    topic_id = next((state.topic_id for state in asked if state.topic_id != ZERO_UUID), ZERO_UUID)
    return DeletableTopicResult(name, topic_id, ErrorCode.INVALID_REQUEST, "The topic is named more than once.")


async def _delete(
    broker: Broker, asked: DeleteTopicState, timeout_ms: int, context: RequestContext
) -> DeletableTopicResult:
    name, topic_id, rights = asked.name, asked.topic_id, context.rights
    try:
        if (name is None) == (topic_id == ZERO_UUID):
            raise InvalidTopicRequest("A topic is named by its name or by its id, not by both.")
        if name is None:
            found = broker.view.require_by_id(topic_id).name
            if not rights.may(AclOperation.DESCRIBE, AclResource.TOPIC, found):
                raise NotAuthorized(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            name = found
        if name in broker.view.topics or not rights.may(AclOperation.DESCRIBE, AclResource.TOPIC, name, quietly=True):
            rights.require(AclOperation.DELETE, AclResource.TOPIC, name)
        topic_id = broker.view.require(name).topic_id
        await controller_for(broker, context).delete_topic(name, timeout_ms)
    except BrokerError as error:
        return DeletableTopicResult(name, topic_id, error.error_code, str(error))
    return DeletableTopicResult(name, topic_id)


HANDLER = Handler(api=ApiKey.DELETE_TOPICS, versions=(1, 6), handle=handle)
