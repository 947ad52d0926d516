"""DescribeUserScramCredentials (API 50)."""

from __future__ import annotations

from broker.wire.schema import Message, Struct, array, int8, int16, int32, message, string, struct


@struct
class UserName(Struct):
    name: str = string()


@message(key=50, versions=(0, 0), flexible=0)
class DescribeUserScramCredentialsRequest(Message):
    users: list[UserName] | None = array(UserName, nullable=0)


@struct
class CredentialInfo(Struct):
    mechanism: int = int8()
    iterations: int = int32()


@struct
class DescribeUserScramCredentialsResult(Struct):
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    credential_infos: list[CredentialInfo] = array(CredentialInfo)


@message(key=50, versions=(0, 0), flexible=0)
class DescribeUserScramCredentialsResponse(Message):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0)
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)
