"""What it means that there is no ticket. Without the library: what it does with a KDC is another test's."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from broker.base.address import Address
from broker.client.applications import client_options
from broker.client.errors import SecretUnreadable
from broker.client.security.kerberos import Attempt
from broker.client.security.settings import KerberosIdentity, Mechanism, Sasl, Security
from broker.client.site import Site
from tests.broker.client.peer import peer
from tests.broker.client.security.test_login import LockedBroker, log_in

FIRST_CODE = 2**32 - 1765328384
KEYTAB = KerberosIdentity("kafka", "farshore@EXAMPLE", Path("/etc/farshore.keytab"))
CACHE = KerberosIdentity("kafka")


@pytest.mark.parametrize(
    ("identity", "code", "why", "next_step"),
    [
        (CACHE, 141, "the principal of the ticket cache, by GSSAPI: there is no ticket in the ticket cache", "`kinit`"),
        (CACHE, 195, "there is no ticket in the ticket cache", "keytab_file"),
        (KerberosIdentity("kafka", "me"), 32, "principal me, by GSSAPI: the ticket has expired", "`kinit me`"),
        (KEYTAB, 195, "the keytab /etc/farshore.keytab has no key of it", "`klist -k /etc/farshore.keytab`"),
        (KEYTAB, 181, "the keytab /etc/farshore.keytab has no key of it", "klist -k"),
        (KEYTAB, 24, "/etc/farshore.keytab has a key that is no more its key", "a new keytab"),
        (KEYTAB, 31, "/etc/farshore.keytab has a key that is no more its key", "a new keytab"),
        (KEYTAB, 37, "the clocks of this machine and of the KDC or the broker differ by too much", "NTP"),
        (KEYTAB, 7, "the KDC knows no service kafka/one.example", "sasl.kerberos.service.name"),
        (KEYTAB, 6, "principal farshore@EXAMPLE, by GSSAPI: the KDC does not know it", "principal"),
        (KEYTAB, 18, "the KDC lets it in no more", "expired or locked"),
        (KEYTAB, 156, "the KDC does not answer", "krb5.conf"),
        (KEYTAB, 224, "its realm is not known here", "krb5.conf"),
        (KEYTAB, 60, "no ticket can be had", "`kvno kafka/one.example`"),
    ],
)
def test_each_trouble_has_its_words_and_a_next_step(
    identity: KerberosIdentity, code: int, why: str, next_step: str
) -> None:
    refused = Attempt(identity, "site east at 10.0.0.1:9093", "one.example").failed(FIRST_CODE + code, "as it says")
    assert str(refused).startswith("site east at 10.0.0.1:9093 and ")
    assert why in str(refused)
    assert str(refused).endswith(" (as it says)")
    assert next_step in refused.hint


def test_what_is_of_no_table_is_told_as_the_library_says_it() -> None:
    assert "no ticket can be had (odd)" in str(Attempt(CACHE, "site east", "one.example").failed(100_001, "odd"))


async def refused(address: Address, identity: KerberosIdentity) -> SecretUnreadable:
    with pytest.raises(SecretUnreadable, match=r"site east at 127\.0\.0\.1:\d+ and ") as caught:
        await log_in(address, Sasl(Mechanism.GSSAPI, "", identity))
    return caught.value


async def test_without_the_extra_it_is_told_how_to_get_it_and_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    broker = LockedBroker()
    async with peer(broker.answer) as address:
        told = await refused(address, CACHE)
    assert "Kerberos needs packages that are not installed" in str(told)
    assert "pip install 'farshore[kerberos]'" in told.hint
    assert broker.requests == []


async def test_applications_are_told_so_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    site = Site("east", "east.example:9093", security=Security(sasl=Sasl(Mechanism.GSSAPI, "", KEYTAB)))
    with pytest.raises(SecretUnreadable, match="site east and principal farshore@EXAMPLE, by GSSAPI: Ker") as caught:
        await client_options(site)
    assert "pip install 'farshore[kerberos]'" in caught.value.hint
