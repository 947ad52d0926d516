"""ApiVersions (API 18).

Its response always has the v0 header, whatever the version, so that a client can read the answer to a
version that the broker does not know: a v0 body with UNSUPPORTED_VERSION (KIP-511).
"""

from __future__ import annotations

from broker.wire.schema import Message, Struct, array, boolean, int16, int32, int64, message, string, struct


@message(key=18, versions=(0, 4), flexible=3)
class ApiVersionsRequest(Message):
    client_software_name: str = string(since=3)
    client_software_version: str = string(since=3)


@struct
class ApiVersion(Struct):
    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


@struct
class SupportedFeatureKey(Struct):
    name: str = string(since=3)
    min_version: int = int16(since=3)
    max_version: int = int16(since=3)


@struct
class FinalizedFeatureKey(Struct):
    name: str = string(since=3)
    max_version_level: int = int16(since=3)
    min_version_level: int = int16(since=3)


@message(key=18, versions=(0, 4), flexible=3)
class ApiVersionsResponse(Message):
    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32(since=1)
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, since=3, tag=0)
    finalized_features_epoch: int = int64(default=-1, since=3, tag=1)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, since=3, tag=2)
    zk_migration_ready: bool = boolean(since=3, tag=3)
