"""AlterUserScramCredentials, v0 (KIP-554): passwords of users, which come salted, set and taken away.

Each user by himself, and once in a request, as Kafka has it. Who stands in the broker's file is changed there alone:
it goes first, and nobody is to believe that he changed a password which still lets in. And a name that is a super
user's gets a password from super users alone: with another's, whoever may alter the cluster would log in as one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from broker.access.authorizer import Rights
from broker.access.entities import USER, path_of
from broker.access.principals import ANONYMOUS
from broker.access.users import Credential, text_of
from broker.broker import Broker
from broker.client.security.scram import ITERATIONS_MIN
from broker.client.security.settings import Mechanism
from broker.errors import BrokerError
from broker.handlers.handler import Handler, RequestContext
from broker.wire.api import ApiKey
from broker.wire.errors import ErrorCode
from broker.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from broker.wire.vocabulary import SCRAM_MECHANISMS, AclOperation, AclResource

ITERATIONS_SET_MAX: Final = 16384
"""Kafka's."""

Alteration = ScramCredentialDeletion | ScramCredentialUpsertion


class CredentialRefused(BrokerError):
    error_code = ErrorCode.UNACCEPTABLE_CREDENTIAL
    hint = "see what Kafka's kafka-configs --alter takes"


async def handle(
    broker: Broker, request: AlterUserScramCredentialsRequest, context: RequestContext
) -> AlterUserScramCredentialsResponse:
    asked: list[Alteration] = [*request.deletions, *request.upsertions]
    try:
        context.rights.require(AclOperation.ALTER, AclResource.CLUSTER)
    except BrokerError as error:
        return _answer({one.name: error for one in asked})
    done: dict[str, BrokerError | None] = {}
    wanted: dict[str, Alteration] = {}
    for one in asked:
        if done.get(one.name):
            continue
        try:
            done[one.name] = None
            if wanted.pop(one.name, None) is not None:
                twice = "A user credential cannot be altered twice in the same request"
                raise CredentialRefused(twice, error_code=ErrorCode.DUPLICATE_RESOURCE)
            _check(broker, one, context.rights)
            wanted[one.name] = one
        except BrokerError as error:
            done[one.name] = error
    for user, one in wanted.items():
        try:
            await broker.entities.change(path_of({USER: user}), partial(_altered, one))
        except BrokerError as error:
            done[user] = error
    return _answer(done)


def _check(broker: Broker, one: Alteration, rights: Rights) -> None:
    """Raises CredentialRefused."""
    if not one.name:
        raise CredentialRefused("Username must not be empty")
    mechanism = SCRAM_MECHANISMS.get(one.mechanism)
    if mechanism is None:
        raise CredentialRefused("Unknown SCRAM mechanism", error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM)
    if isinstance(one, ScramCredentialDeletion):
        if mechanism not in broker.users.stored.get(one.name, {}):
            raise _not_there()
    elif one.iterations < ITERATIONS_MIN:
        raise CredentialRefused("Too few iterations")
    elif one.iterations > ITERATIONS_SET_MAX:
        raise CredentialRefused("Too many iterations")
    elif not one.salt or not one.salted_password:
        raise CredentialRefused("The salt, or the salted password, is empty")
    elif broker.users.is_in_file(one.name):
        raise CredentialRefused(
            f"{one.name} stands in the broker's sasl_users_file, which goes first: change the password there "
            "(farshore broker user), or take the user out of it"
        )
    else:
        _check_name(broker, one.name, rights)


def _check_name(broker: Broker, name: str, rights: Rights) -> None:
    """Who he is that logs in by that name; `rights` of who sets the password. Raises CredentialRefused.

    A super user may set one for a super user: he gains nothing by it, and may do everything to the cluster anyway.
    """
    principal = f"User:{name}"
    if principal == ANONYMOUS:
        raise CredentialRefused(f"{name} is who does not log in: take another name")
    if principal in broker.config.super_users and rights.is_limited:
        raise CredentialRefused(
            f"{name} is a super user: who is none may not set a password for him; have a super user do it"
        )


def _not_there() -> CredentialRefused:
    return CredentialRefused(
        "Attempt to delete a user credential that does not exist", error_code=ErrorCode.RESOURCE_NOT_FOUND
    )


def _altered(one: Alteration, values: Mapping[str, str]) -> dict[str, str]:
    mechanism = SCRAM_MECHANISMS[one.mechanism]
    if isinstance(one, ScramCredentialUpsertion):
        made = Credential.of_salted(Mechanism(mechanism), one.salted_password, one.salt, one.iterations)
        return {**values, mechanism: text_of(made)}
    if mechanism not in values:
        raise _not_there()
    return {name: value for name, value in values.items() if name != mechanism}


def _answer(done: Mapping[str, BrokerError | None]) -> AlterUserScramCredentialsResponse:
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user, error_message=None)
            if error is None
            else AlterUserScramCredentialsResult(user, error.error_code, str(error))
            for user, error in sorted(done.items())
        ]
    )


HANDLER = Handler(api=ApiKey.ALTER_USER_SCRAM_CREDENTIALS, versions=(0, 0), handle=handle)
