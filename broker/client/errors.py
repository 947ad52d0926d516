"""What can go wrong while talking to a cluster.

ClientError
├── ConnectionLost          the connection ended, or an answer cannot be read: it may or may not have happened
│   └── NotConnected        there never was one
├── RequestTimedOut         no answer in time; the connection is closed, same doubt
├── BrokerSetAside          it was silent before, and who asked then asks it no more
├── ClusterUnreachable      no bootstrap server answered
├── UnsupportedByCluster    no common version of an API
├── ResponseTooLarge        a frame above the limit
├── LogUnreadable           a batch of a log that cannot be read
├── ReadUnfinished          a log that is longer than there was time to read it
├── SiteInvalid             a site that cannot be dialled as it is declared
│   └── SecurityInvalid     certificates and keys that cannot be read, or do not fit together
├── AccessRefused           a broker is there, and it or this client is not let in
│   ├── TlsRefused          no TLS that both speak
│   ├── CertificateRefused  one side does not take the other's certificate
│   ├── AuthenticationFailed
│   └── SecretUnreadable    a password, token or ticket that cannot be had: nobody can log in
└── KafkaError              the cluster answered with an error code
"""

from __future__ import annotations

from typing import Final, Self

from broker.base.errors import FarshoreError
from broker.wire.errors import ErrorCode


class ClientError(FarshoreError):
    """Talking to a cluster failed."""

    def again(self) -> Self:
        """The same for another one who waited for it: each that is raised gets a traceback of its own."""
        found = type(self).__new__(type(self), *self.args)
        found.__dict__.update(self.__dict__)
        return found


class ConnectionLost(ClientError):
    """The connection ended. A request that was in flight may or may not have been carried out."""

    retriable = True
    hint = "check that the broker runs and that this address reaches it"


class NotConnected(ConnectionLost):
    """Nothing took a connection: the host refused it, or there was no way to it."""


class RequestTimedOut(ClientError):
    """No answer came in time; the connection was closed. The request may or may not have been carried out."""

    retriable = True
    hint = "the broker is overloaded or the network stalls: look at its log, then try again"


class BrokerSetAside(ClientError):
    """Nothing was sent: the broker gave no answer before, and is not asked again by this command."""

    hint = "see why the broker does not answer"


class ClusterUnreachable(ClientError):
    """None of a site's bootstrap servers answered."""

    retriable = True
    hint = "check the site's bootstrap_servers, and that a broker runs there"


class UnsupportedByCluster(ClientError):
    """The cluster and this client have no common version of an API."""

    hint = "farshore needs Apache Kafka 2.8 or newer, or farshore's own broker"


class ResponseTooLarge(ClientError):
    """A response frame above `max_frame_bytes`."""

    hint = "the peer may not be a Kafka broker: check the site's bootstrap_servers and address_map"


class LogUnreadable(ClientError):
    """A batch of a partition's log that cannot be read: damaged where no check at the broker sees it."""

    hint = "look at the partition's log on the broker that leads it (`kafka-dump-log`); a replica may have a whole copy"


class ReadUnfinished(ClientError):
    """A log that was not read to its end in the time that there was. Nothing is wrong with it."""

    hint = "nothing needs to be done: it goes on being read"


class SiteInvalid(ClientError):
    """A site without a server to dial."""

    hint = "correct farshore.toml and run `farshore config validate`"


class SecurityInvalid(SiteInvalid):
    """Files of a site's security that cannot be read, or do not fit together."""

    hint = "correct the files, or the site's security in farshore.toml"


class AccessRefused(ClientError):
    """Somebody answered, and does not let this client in, or is not who it must be. Such a site is not dead."""


class TlsRefused(AccessRefused):
    """No TLS that both sides speak."""

    hint = (
        "compare the site's security with the listener's settings: protocol, tls_version_min, and whether it wants "
        "a client's certificate (certificate_file, key_file)"
    )


class CertificateRefused(AccessRefused):
    """One side does not take the other's certificate."""


class AuthenticationFailed(AccessRefused):
    """The broker does not take the login, or has not proven that it is the broker."""

    hint = "check mechanism, username and password of the site's security, and the credentials at the cluster"


class SecretUnreadable(AccessRefused):
    """A password, a token or a ticket that cannot be had from where it should stand. The message never has it.

    It is asked for when the broker has answered, so it says nothing against the site.
    """

    hint = "put it there, readable for the user that runs farshore and for nobody else"


NOT_LET_IN: Final = (AccessRefused, SiteInvalid)
"""Of a site that these come from nothing says that it is dead: somebody answered, or farshore could not even ask."""


class KafkaError(ClientError):
    """The cluster answered with an error code."""

    def __init__(self, code: int | ErrorCode, what: str, detail: str | None = None) -> None:
        self.code = ErrorCode.of(int(code))
        super().__init__(f"{what}: {self.code.name} ({detail or self.code.description})")
        self.retriable = self.code.retriable
        self.hint = _HINTS.get(self.code, "see the broker's log for the reason")


_PRINTED: Final = " (`farshore link rights` prints all that are needed)"
_HINTS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "list what is there with `farshore topic list --site SITE`",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "give farshore's principal its rights on this topic" + _PRINTED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "give farshore's principal its rights on this group" + _PRINTED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "give farshore's principal its rights on the cluster" + _PRINTED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "give farshore's principal its rights on its ids" + _PRINTED,
    ErrorCode.TOPIC_ALREADY_EXISTS: "choose another name, or delete the topic first",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "topic names have letters, digits, '.', '_' and '-', at most 249 characters",
    ErrorCode.INVALID_CONFIG: "correct the names and values given with --config NAME=VALUE",
    ErrorCode.INVALID_REPLICATION_FACTOR: "the cluster has fewer brokers than that: use a smaller replication factor",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has members at this site: stop them before its offsets are set",
    ErrorCode.GROUP_ID_NOT_FOUND: "list what is there with `farshore group list --site SITE`",
    ErrorCode.NON_EMPTY_GROUP: "stop the group's consumers first",
    ErrorCode.KAFKA_STORAGE_ERROR: "free or repair the disk of the broker that answered, then try again",
    ErrorCode.MESSAGE_TOO_LARGE: "raise max.message.bytes of the target topic",
    ErrorCode.INVALID_TIMESTAMP: "set this machine's clock right: a broker takes no time an hour ahead of its own",
}
