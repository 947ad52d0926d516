"""The model of farshore.toml, and what commands get as `ctx.obj`.

The file is read once, wholly, and every complaint about it names the file, the key's path and what to do. Paths in it
are relative to its own folder.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import click
from pydantic import ValidationError

from broker.access.listeners import EVERY_INTERFACE
from broker.base.address import Address, parse_address
from broker.client.security.settings import PLAINTEXT
from broker.client.site import Site
from broker.config import BrokerConfig, cluster_defaults
from deploy.client_properties import PropertiesRefused
from deploy.complaints import all_told, by_id
from deploy.errors import ConfigError
from deploy.security import security_of, security_text
from deploy.tables import FileModel, LinkTable, SiteTable, Table
from deploy.topology import connect, topology_problems
from failover.freezing.hooks import Hooks
from mirror.fleet.settings import FleetAccess, FleetSettings
from mirror.link import Link

LISTENERS: Final = ("listen", "inter_broker_listen")


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
            problems += [*_shared_addresses(self._sites.values()), *_broker_problems(self)]
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
        for key, value in table.model_dump(exclude_none=True).items():
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
        return BrokerConfig(address_map=dict(model.address_map), **given)

    def fleet(self) -> FleetAccess | None:
        """Where the fleet of this file's workers agrees; None: each worker runs what it is told. Raises ConfigError."""
        table = self.model.fleet
        if table is None:
            return None
        password = None
        if table.password_file is not None:
            try:
                password = self.path(table.password_file).read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise _config_error(self.file, [f"fleet.password_file: cannot be read: {error}"]) from error
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
        return {
            "monitor": {"run": {key: value for key, value in monitor.items() if value is not None}},
            "audit": {"run": {key: value for key, value in audit.items() if value is not None}},
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

    def broker_config(self, site: str, node_id: int | None = None) -> BrokerConfig:
        return self.configuration.broker_config(site, node_id)

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


def broker_address(site: SiteTable) -> Address | None:
    """Where a site's own broker listens: `listen`, else the only bootstrap server; None when that is ambiguous."""
    if site.broker is not None and site.broker.listen is not None:
        return parse_address(site.broker.listen)
    servers = site.bootstrap_servers.split(",")
    return parse_address(servers[0]) if len(servers) == 1 else None


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


def _broker_problems(configuration: Configuration) -> list[str]:
    """Brokers that could not run beside each other, or of which it is not known where they listen."""
    problems: list[str] = []
    folders: dict[Path, str] = {}
    for name, site in configuration.model.sites.items():
        problems += _cluster_problems(name, site)
        own = [*site.brokers, *([] if site.broker is None else [site.broker])]
        if site.security is not None and any(each.listeners is None for each in own):
            problems.append(f"sites.{name}.security: farshore's brokers here have no TLS and no logins; take it out")
        if site.freeze_principals and (site.broker is not None or site.brokers):
            problems.append(f"sites.{name}.freeze_principals: farshore's own brokers freeze by their role; take it out")
        where = f"sites.{name}.broker"
        tables: list[tuple[str, Path, int | None]] = []
        if site.broker is not None:
            tables.append((where, site.broker.data_dir, None))
        tables += [
            (f"{where}s[{index}]{by_id(table.node_id)}", table.data_dir, table.node_id)
            for index, table in enumerate(site.brokers)
        ]
        for path, data_dir, node_id in tables:
            named = site.broker is not None and site.broker.listeners is not None
            if node_id is None and not named and broker_address(site) is None:
                problems.append(f"{path}.listen: is missing; bootstrap_servers names more than one address")
            elif (every_interface := _not_advertised(site, node_id)) is not None:
                problems.append(f"{path}.advertised: {every_interface}")
            elif node_id is None or site.cluster is not None:
                try:
                    configuration.broker_config(name, node_id)
                except ValueError as error:
                    problems.append(f"{path}: {error}")
            folder = configuration.path(data_dir).resolve()
            if folder in folders:
                problems.append(f"{path}.data_dir: site {folders[folder]} has the same folder; give each its own")
            else:
                nested = next((f for f in folders if f in folder.parents or folder in f.parents), None)
                if nested is not None:
                    problems.append(
                        f"{path}.data_dir: {nested}, of site {folders[nested]}, is in it or around it; "
                        "give each a folder of its own"
                    )
            folders.setdefault(folder, name)
    return problems


def _not_advertised(site: SiteTable, node_id: int | None) -> str | None:
    """Of a broker that listens on every interface, and tells clients no address that they could dial."""
    table = site.broker if node_id is None else next(each for each in site.brokers if each.node_id == node_id)
    listen = broker_address(site) if table is None or table.listen is None else parse_address(table.listen)
    if table is None or table.advertised is not None or listen is None or listen.host not in EVERY_INTERFACE:
        return None
    if table.listen is None and table.listeners is not None:
        return None
    named = [str(each) for each in map(parse_address, site.bootstrap_servers.split(",")) if each.port == listen.port]
    dialled = named[0] if len(named) == 1 and parse_address(named[0]).host not in EVERY_INTERFACE else None
    return (
        f"is missing; listen {listen.host} is every interface of the machine, and nothing that clients and brokers "
        f'could dial: add advertised = "{dialled or f"HOST:{listen.port}"}"'
        f"{', as bootstrap_servers has it' if dialled else ', with a HOST that they know'}"
    )


def _cluster_problems(name: str, site: SiteTable) -> Iterator[str]:
    """Of a site's brokers among themselves."""
    if site.brokers and site.broker is not None:
        yield f"sites.{name}.broker: this site has brokers too; write its only broker as broker, or all as brokers"
    if site.brokers and site.cluster is None:
        yield f"sites.{name}.cluster: is missing; add zookeeper there, which keeps the metadata of these brokers"
    if site.cluster is not None and not site.brokers:
        yield f"sites.{name}.brokers: is missing; add a [[sites.{name}.brokers]] table for each broker of the cluster"
    for index, table in enumerate(site.brokers):
        if table.listen is None and table.listeners is None:
            yield f"sites.{name}.brokers[{index}]{by_id(table.node_id)}.listen: is missing; or give listeners"
    for keys, what in ((("node_id",), "broker has this node id"), (LISTENERS, "listener has this address")):
        seen: set[object] = set()
        for index, table in enumerate(site.brokers):
            for key in keys:
                value = getattr(table, key)
                if value in seen:
                    where = f"sites.{name}.brokers[{index}]{by_id(table.node_id)}"
                    yield f"{where}.{key}: another {what}, {value}; give each its own"
                if value is not None:
                    seen.add(value)
