"""AlterUserScramCredentials (API 51)."""

from __future__ import annotations

from broker.wire.schema import Message, Struct, array, bytestring, int8, int16, int32, message, string, struct


@struct
class ScramCredentialDeletion(Struct):
    name: str = string()
    mechanism: int = int8()


@struct
class ScramCredentialUpsertion(Struct):
    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: bytes = bytestring()
    salted_password: bytes = bytestring()


@message(key=51, versions=(0, 0), flexible=0)
class AlterUserScramCredentialsRequest(Message):
    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


@struct
class AlterUserScramCredentialsResult(Struct):
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)


@message(key=51, versions=(0, 0), flexible=0)
class AlterUserScramCredentialsResponse(Message):
    throttle_time_ms: int = int32()
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)
