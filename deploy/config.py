"""The model of farshore.toml, and what commands get as `ctx.obj`.

The file is read once, wholly, and every complaint about it names the file, the key's path and what to do. Paths in it
are relative to its own folder.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from broker.base.address import Address, parse_address
from broker.client.security.settings import PLAINTEXT
from broker.client.site import Site
from broker.cluster.zookeeper.access import ZooKeeperAccess
from broker.config import BrokerConfig, cluster_defaults
from broker.http.errors import FaceOpen
from broker.http.settings import FaceSettings
from deploy.broker_tables import broker_address, broker_problems, start_problems
from deploy.client_properties import PropertiesRefused
from deploy.complaints import all_told, by_id
from deploy.errors import ConfigError
from deploy.security import face_of, metrics_of, password_of, security_of, security_text, zookeeper_access_of
from deploy.tables import FileModel, LinkTable
from deploy.topology import connect, topology_problems
from deploy.values import Table
from failover.freezing.hooks import Hooks
from mirror.fleet.settings import FleetAccess, FleetSettings
from mirror.link import Link


class Configuration:
    """A configuration file that was read and checked."""

    def __init__(self, model: FileModel, file: Path) -> None:
        """Raises ConfigError with every problem between tables."""
        self.file = file
        self.model = model
        self.state_dir = self.path(model.state_dir)
        self._sites: dict[str, Site] = {}
        problems = [*self._read_sites(), *_reference_problems(model)]
        if not problems:
            self._links = connect([self._link(table) for table in model.links])
            problems = [f"links: {problem}" for problem in topology_problems(self._links)]
            problems += [
                *_shared_addresses(self._sites.values()),
                *broker_problems(model, self.path, self.broker_config),
            ]
            problems += self._face_problems()
        if problems:
            raise _config_error(file, problems)

    def path(self, relative: Path) -> Path:
        """A path of the file as seen from the current folder."""
        return self.file.parent / relative.expanduser()

    def _read_sites(self) -> Iterator[str]:
        """Fills `_sites`, and says what is wrong with the files of their security."""
        for name, table in self.model.sites.items():
            security = PLAINTEXT
            try:
                security = security_of(table.security, self.path)
            except PropertiesRefused as refused:
                yield from (f"sites.{name}.security.properties_file: {problem}" for problem in refused.problems)
            where = (name, table.bootstrap_servers, dict(table.address_map))
            self._sites[name] = Site(*where, security, table.freeze_principals)

    def _link(self, table: LinkTable) -> Link:
        return table.link(self._sites[table.source], self._sites[table.target])

    def site(self, name: str) -> Site:
        """Raises click.UsageError that names the known sites."""
        if name not in self._sites:
            raise click.UsageError(f"{self.file} has no site {name!r}; its sites: {', '.join(self._sites)}")
        return self._sites[name]

    def sites(self) -> Mapping[str, Site]:
        return dict(self._sites)

    def link(self, name: str | None) -> Link:
        """None: the only link. Raises click.UsageError that names the known links."""
        known = ", ".join(link.name for link in self._links) or "none"
        if name is None:
            if len(self._links) == 1:
                return self._links[0]
            raise click.UsageError(f"name a link with --link; the links in {self.file}: {known}")
        for link in self._links:
            if link.name == name:
                return link
        raise click.UsageError(f"{self.file} has no link {name!r}; its links: {known}")

    def links(self) -> tuple[Link, ...]:
        return self._links

    def security_text(self, site: str) -> str:
        """Its table of security as another folder's file has it."""
        return security_text(site, self.model.sites[site].security, self.path)

    def node_ids(self, site: str) -> tuple[int, ...]:
        return tuple(table.node_id for table in self.model.sites[site].brokers)

    def zookeeper(self, site: str) -> str | None:
        cluster = self.model.sites[site].cluster
        return None if cluster is None else cluster.zookeeper

    def zookeeper_access(self, site: str) -> ZooKeeperAccess | None:
        """How that ZooKeeper is reached, and as whom."""
        cluster = self.model.sites[site].cluster
        return None if cluster is None else zookeeper_access_of(cluster.zookeeper_security, self.path)

    def broker_config(self, site: str, node_id: int | None = None) -> BrokerConfig:
        """How to run a broker of a site; None: its only one. Raises click.UsageError when farshore does not run it."""
        self.site(site)
        if self.model.sites[site].brokers:
            return self._cluster_broker_config(site, node_id)
        table = self.model.sites[site].broker
        if table is None:
            raise click.UsageError(
                f"site {site!r} has no [sites.{site}.broker] table in {self.file}: add data_dir there"
            )
        given = self._given(table)
        if table.listen is None and table.listeners is None:
            listen = broker_address(self.model.sites[site])
            assert listen is not None, "checked when the file was read"
            given |= {"listen_host": listen.host, "listen_port": listen.port}
        config = BrokerConfig(**given)
        if node_id not in (None, config.node_id):
            raise click.UsageError(f"site {site!r} has one broker, and it is not node {node_id}: leave out --node-id")
        return config

    def _given(self, table: Table) -> dict[str, Any]:
        """As BrokerConfig has it."""
        given: dict[str, Any] = {}
        for key, value in table.model_dump(exclude_none=True, exclude={"metrics", "zookeeper_security"}).items():
            if key in ("listen", "advertised", "inter_broker_listen"):
                given[f"{key}_host"], given[f"{key}_port"] = parse_address(value)
            else:
                given[key] = self.path(value) if isinstance(value, Path) else value
        return given

    def _cluster_broker_config(self, site: str, node_id: int | None) -> BrokerConfig:
        model = self.model.sites[site]
        assert model.cluster is not None, "checked when the file was read"
        known = ", ".join(str(table.node_id) for table in model.brokers)
        if node_id is None and len(model.brokers) > 1:
            raise click.UsageError(f"name a broker of site {site!r} with --node-id: {known}")
        table = next((each for each in model.brokers if node_id in (None, each.node_id)), None)
        if table is None:
            raise click.UsageError(f"site {site!r} has no broker {node_id}; its brokers: {known}")
        given = {**cluster_defaults(len(model.brokers)), **self._given(model.cluster), **self._given(table)}
        return BrokerConfig(address_map=dict(model.address_map), zookeeper_access=self.zookeeper_access(site), **given)

    def check_start(self) -> None:
        """Raises ConfigError for brokers that would not start, though all other commands go on."""
        if problems := list(start_problems(self.model, self.broker_config)):
            raise _config_error(self.file, problems)

    def broker_metrics(self, site: str, node_id: int | None = None) -> FaceSettings | None:
        """Where a broker of the site, None: its only one, shows its metrics; None: nowhere."""
        model = self.model.sites[site]
        tables = model.brokers or (() if model.broker is None else (model.broker,))
        found = next((each for each in tables if node_id in (None, each.node_id)), None)
        return None if found is None else metrics_of(found.metrics, self.path)

    def monitor_face(self, listen: Address) -> FaceSettings:
        """To whom `farshore monitor run` and `farshore audit watch` show what they know."""
        return face_of(self.model.monitor, listen, self.path)

    def _face_problems(self) -> Iterator[str]:
        """What would be shown to everybody."""
        faces: list[tuple[str, FaceSettings | None]] = []
        if self.model.monitor.listen is not None:
            faces.append(("monitor", self.monitor_face(parse_address(self.model.monitor.listen))))
        for name, site in self.model.sites.items():
            if site.broker is not None and site.broker.metrics is not None:
                faces.append((f"sites.{name}.broker.metrics", metrics_of(site.broker.metrics, self.path)))
            for index, table in enumerate(site.brokers):
                where = f"sites.{name}.brokers[{index}]{by_id(table.node_id)}.metrics"
                faces.append((where, metrics_of(table.metrics, self.path)))
        for where, face in faces:
            try:
                if face is not None:
                    face.check()
            except FaceOpen as refused:
                yield f"{where}.listen: {refused}; {refused.hint}"

    def fleet(self) -> FleetAccess | None:
        """Where the fleet of this file's workers agrees; None: each worker runs what it is told."""
        table = self.model.fleet
        if table is None:
            return None
        password = password_of(table.password_file, table.password_env, table.password_command, self.path)
        files = {
            name: str(self.path(path))
            for name in ("tls_ca_file", "tls_cert_file", "tls_key_file")
            if (path := getattr(table, name)) is not None
        }
        settings = FleetSettings(table.prefix, table.lease_seconds, table.without_etcd_seconds)
        return FleetAccess(tuple(map(parse_address, table.etcd)), settings, table.user, password, **files)

    def hooks(self) -> Hooks:
        table = self.model.failover
        return Hooks(table.freeze_hook, table.thaw_hook, table.before_hook, table.after_hook)

    def option_defaults(self) -> dict[str, Any]:
        """Defaults of command-line options that the file gives, as click's `default_map`."""
        monitor = {"listen": self.model.monitor.listen}
        audit: dict[str, Any] = {"master": self.model.audit.master}
        audit["jars"] = [str(self.path(jar)) for jar in self.model.audit.jars] or None
        given = {key: value for key, value in audit.items() if value is not None}
        return {
            "monitor": {"run": {key: value for key, value in monitor.items() if value is not None}},
            "audit": {command: dict(given) for command in ("run", "watch", "digest", "compare")},
        }


class FileContext:
    """`ctx.obj`, a `deploy.cli.terminal.AppContext`: reads the file when a command first asks for something, so that
    commands without one need none.
    """

    def __init__(self, file: Path) -> None:
        self.file = file

    @cached_property
    def configuration(self) -> Configuration:
        """Raises ConfigError."""
        return load(self.file)

    def fresh(self) -> FileContext:
        """The same file, to be read anew."""
        return FileContext(self.file)

    @property
    def state_dir(self) -> Path:
        return self.configuration.state_dir

    def site(self, name: str) -> Site:
        return self.configuration.site(name)

    def sites(self) -> Mapping[str, Site]:
        return self.configuration.sites()

    def link(self, name: str | None) -> Link:
        return self.configuration.link(name)

    def links(self) -> tuple[Link, ...]:
        return self.configuration.links()

    def security_text(self, site: str) -> str:
        return self.configuration.security_text(site)

    def node_ids(self, site: str) -> tuple[int, ...]:
        return self.configuration.node_ids(site)

    def runs_brokers(self, site: str) -> bool:
        table = self.configuration.model.sites[site]
        return table.broker is not None or bool(table.brokers)

    def zookeeper(self, site: str) -> str | None:
        return self.configuration.zookeeper(site)

    def zookeeper_access(self, site: str) -> ZooKeeperAccess | None:
        return self.configuration.zookeeper_access(site)

    def broker_config(self, site: str, node_id: int | None = None) -> BrokerConfig:
        return self.configuration.broker_config(site, node_id)

    def broker_metrics(self, site: str, node_id: int | None = None) -> FaceSettings | None:
        return self.configuration.broker_metrics(site, node_id)

    def monitor_face(self, listen: Address) -> FaceSettings:
        return self.configuration.monitor_face(listen)

    def fleet(self) -> FleetAccess | None:
        return self.configuration.fleet()

    def hooks(self) -> Hooks:
        return self.configuration.hooks()


def load(file: Path) -> Configuration:
    """Read and check a configuration file. Raises ConfigError naming the file, the keys and what to do."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError as missing:
        raise ConfigError(
            f"there is no configuration file {file}", "write one (README.md shows it), or name it with --config FILE"
        ) from missing
    except UnicodeDecodeError as binary:
        raise ConfigError(f"{file} is not text: {binary}", "name a TOML file in UTF-8") from binary
    except OSError as unreadable:
        raise ConfigError(f"{file} cannot be read: {unreadable}", "check the path and its permissions") from unreadable
    return parse(text, file)


def parse(text: str, file: Path) -> Configuration:
    """The configuration in a file's text; `file` is for its folder and for messages. Raises ConfigError."""
    try:
        read = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file} is not TOML: {error}", "correct the line it names") from error
    try:
        model = FileModel.model_validate(read)
    except ValidationError as error:
        raise _config_error(file, all_told(error, read)) from error
    return Configuration(model, file)


def _config_error(file: Path, problems: list[str]) -> ConfigError:
    lines = problems[0] if len(problems) == 1 else "".join(f"\n  {problem}" for problem in problems)
    return ConfigError(f"{file}: {lines}", f"correct {file}, then run: farshore --config {file} config validate")


def _reference_problems(model: FileModel) -> Iterator[str]:
    """Names that do not fit together."""
    seen: set[str] = set()
    known = ", ".join(model.sites)
    for index, link in enumerate(model.links):
        where = f"links[{index}] ({link.name})"
        if link.name in seen:
            yield f"{where}.name: another link has this name; links are found by name, so choose a second one"
        seen.add(link.name)
        for end in ("source", "target"):
            if getattr(link, end) not in model.sites:
                yield f"{where}.{end}: no site is called {getattr(link, end)!r}; the sites: {known}"
        if link.source == link.target:
            yield f"{where}.target: a link joins two sites, this one has {link.source!r} at both ends"


def _shared_addresses(sites: Iterable[Site]) -> Iterator[str]:
    """Sites that are dialled at one address are one cluster: a link between them would feed itself."""
    owners: dict[Address, str] = {}
    for site in sites:
        for address in site.bootstrap():
            owner = owners.setdefault(address, site.name)
            if owner != site.name:
                where = f"sites.{site.name}.bootstrap_servers"
                yield f"{where}: {address} is site {owner}'s; each site is a cluster of its own"
