"""Tokens by which AWS MSK knows who comes by IAM: signed here, by the library that AWS has for it."""

from __future__ import annotations

from typing import Final

from broker.client.errors import SecretUnreadable
from broker.client.security.settings import AwsIdentity

EXTRA: Final = "pip install 'farshore[aws]'"
# What the library says may have more in it than its name.
_KNOWN: Final = {
    "AttributeError": "there are none",
    "NoCredentialsError": "there are none",
    "ProfileNotFound": "there is no such profile",
    "TokenRetrievalError": "the single sign-on is over",
    "UnauthorizedSSOTokenError": "the single sign-on is over",
    "SSOTokenLoadError": "the single sign-on is over",
}


def signed_token(identity: AwsIdentity) -> str:
    """For one login; it holds for 15 minutes. Blocks: AWS may be asked for credentials. Raises SecretUnreadable."""
    try:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider as Signer
    except ImportError:
        raise SecretUnreadable(f"{identity} needs packages that are not installed", EXTRA) from None
    try:
        if identity.profile is None:
            token, _ = Signer.generate_auth_token(identity.region)
        else:
            token, _ = Signer.generate_auth_token_from_profile(identity.region, identity.profile)
    except Exception as error:  # noqa: BLE001 - the library lets through what each of AWS's ways to credentials raises
        name = type(error).__name__
        raise SecretUnreadable(
            f"{identity} cannot be signed, as AWS's credentials cannot be had: {_KNOWN.get(name, name)}",
            "look at what `aws sts get-caller-identity` says for the same user and profile",
        ) from None
    return str(token)
