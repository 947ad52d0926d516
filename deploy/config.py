"""The model of farshore.toml, and what commands get as `ctx.obj`.

The file is read once, wholly, and every complaint about it names the file, the key's path and what to do. Paths in it
are relative to its own folder.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import click
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from broker.base.address import Address, AddressInvalid, parse_address
from broker.client.site import Site
from broker.config import BrokerConfig
from broker.groups.model import MigrationPolicy
from broker.limits import PARTITIONS_PER_TOPIC_MAX
from deploy.errors import ConfigError
from deploy.topology import connect, topology_problems
from mirror.link import Link, TopicNames

DEFAULT_STATE_DIR = Path("var")
# Site names become prefixes of topics and parts of topic names, so they are of Kafka's alphabet; the dot separates.
NAME_PATTERN = r"^[a-zA-Z0-9_-]{1,64}$"


def _address(text: str) -> str:
    try:
        parse_address(text)
    except AddressInvalid as error:
        raise ValueError(str(error)) from error
    return text


def _addresses(text: str) -> str:
    for server in text.split(","):
        _address(server)
    return text


def _regex(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is no regular expression: {error}") from error
    return text


Regex = Annotated[str, AfterValidator(_regex)]
AddressText = Annotated[str, AfterValidator(_address)]


class Table(BaseModel):
    """A table of the file: unknown keys are refused, so that a typing error is not a silent default."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class BrokerTable(Table):
    """A broker that farshore runs itself; the other keys are those of `BrokerConfig`, with its defaults."""

    data_dir: Path
    listen: AddressText | None = None
    advertised: AddressText | None = None
    node_id: int | None = Field(None, ge=0, le=2**31 - 1)
    cluster_id: str | None = None
    rack: str | None = None
    num_partitions: int | None = Field(None, ge=1, le=PARTITIONS_PER_TOPIC_MAX)
    auto_create_topics_enable: bool | None = None
    offsets_topic_num_partitions: int | None = Field(None, ge=1, le=PARTITIONS_PER_TOPIC_MAX)
    group_initial_rebalance_delay_ms: int | None = Field(None, ge=0)
    group_consumer_migration_policy: MigrationPolicy | None = None
    log_retention_check_interval_ms: int | None = Field(None, ge=1)
    max_connections: int | None = Field(None, ge=1)
    record_validation: Literal["framing", "full"] | None = None


class SiteTable(Table):
    bootstrap_servers: Annotated[str, AfterValidator(_addresses)]
    address_map: dict[AddressText, AddressText] = Field(default_factory=dict)
    broker: BrokerTable | None = None


class LinkTable(Table):
    name: str = Field(pattern=NAME_PATTERN)
    source: str
    target: str
    topics: tuple[Regex, ...] = Field(min_length=1)
    topic_names: TopicNames = "same"
    groups: tuple[Regex, ...] = ()


class MonitorTable(Table):
    """Defaults of `farshore monitor run`."""

    listen: AddressText | None = None


class AuditTable(Table):
    """Defaults of `farshore audit run`."""

    master: str | None = None
    jars: tuple[Path, ...] = ()
    window: str | None = None


class FileModel(Table):
    state_dir: Path = DEFAULT_STATE_DIR
    sites: dict[Annotated[str, Field(pattern=NAME_PATTERN)], SiteTable] = Field(min_length=1)
    links: tuple[LinkTable, ...] = ()
    monitor: MonitorTable = Field(default_factory=MonitorTable)
    audit: AuditTable = Field(default_factory=AuditTable)


class Configuration:
    """A configuration file that was read and checked: implements `deploy.cli.terminal.AppContext`."""

    def __init__(self, model: FileModel, file: Path) -> None:
        """Raises ConfigError with every problem between tables."""
        self.file = file
        self.model = model
        self.state_dir = self.path(model.state_dir)
        self._sites = {
            name: Site(name, table.bootstrap_servers, dict(table.address_map)) for name, table in model.sites.items()
        }
        problems = list(_reference_problems(model))
        if not problems:
            self._links = connect([self._link(table) for table in model.links])
            problems = [f"links: {problem}" for problem in topology_problems(self._links)]
            problems += [*_shared_addresses(self._sites.values()), *_broker_problems(self)]
        if problems:
            raise _config_error(file, problems)

    def path(self, relative: Path) -> Path:
        """A path of the file as seen from the current folder."""
        return self.file.parent / relative.expanduser()

    def _link(self, table: LinkTable) -> Link:
        return Link(
            name=table.name,
            source=self._sites[table.source],
            target=self._sites[table.target],
            topics=table.topics,
            topic_names=table.topic_names,
            groups=table.groups,
        )

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

    def broker_config(self, site: str) -> BrokerConfig:
        """How to run the broker of a site. Raises click.UsageError when farshore does not run that site's broker."""
        self.site(site)
        table = self.model.sites[site].broker
        if table is None:
            raise click.UsageError(
                f"site {site!r} has no [sites.{site}.broker] table in {self.file}: add data_dir there"
            )
        listen = broker_address(self.model.sites[site])
        assert listen is not None, "checked when the file was read"
        advertised = None if table.advertised is None else parse_address(table.advertised)
        given = table.model_dump(exclude={"data_dir", "listen", "advertised"}, exclude_none=True)
        return BrokerConfig(
            data_dir=self.path(table.data_dir),
            listen_host=listen.host,
            listen_port=listen.port,
            advertised_host=advertised.host if advertised else None,
            advertised_port=advertised.port if advertised else None,
            **given,
        )

    def option_defaults(self) -> dict[str, Any]:
        """Defaults of command-line options that the file gives, as click's `default_map`."""
        monitor = {"listen": self.model.monitor.listen}
        audit: dict[str, Any] = {"master": self.model.audit.master, "window_ms": self.model.audit.window}
        audit["jars"] = [str(self.path(jar)) for jar in self.model.audit.jars] or None
        return {
            "monitor": {"run": {key: value for key, value in monitor.items() if value is not None}},
            "audit": {"run": {key: value for key, value in audit.items() if value is not None}},
        }


class FileContext:
    """`ctx.obj`: reads the file when a command first asks for something, so that commands without one need none."""

    def __init__(self, file: Path) -> None:
        self.file = file

    @cached_property
    def configuration(self) -> Configuration:
        """Raises ConfigError."""
        return load(self.file)

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

    def broker_config(self, site: str) -> BrokerConfig:
        return self.configuration.broker_config(site)


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
        model = FileModel.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file} is not TOML: {error}", "correct the line it names") from error
    except ValidationError as error:
        raise _config_error(file, _all_told(error)) from error
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


def _all_told(error: ValidationError) -> list[str]:
    """Every problem once: a list is said to be too short only where its elements are not the reason."""
    problems = error.errors()
    return [
        _told(problem)
        for problem in problems
        if problem["type"] != "too_short"
        or not any(other["loc"][:-1] == problem["loc"] for other in problems if other["loc"])
    ]


def _told(problem: Any) -> str:
    """One of pydantic's errors as "links[0].topics: what is wrong"."""
    path = ""
    for part in problem["loc"]:
        # "[key]" marks a table's name itself, which the path before it already says.
        if part != "[key]":
            path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    match problem["type"]:
        case "extra_forbidden":
            return f"{path}: there is no such key; remove it or correct its spelling"
        case "missing":
            return f"{path}: is missing; add it"
        case "string_pattern_mismatch":
            return f"{path}: use 1 to 64 letters, digits, `_` and `-`"
        case "tuple_type":
            form = "[[links]], with two brackets" if path == "links" else 'a list, for example ["a", "b"]'
            return f"{path}: write {form}"
        case "dict_type" | "model_type":
            return f"{path}: write a table: [{path}]"
        case "too_short":
            return f"{path}: is empty; name at least one"
        case "string_type":
            return f"{path}: write text in quotes"
        case "path_type":
            return f"{path}: write a path in quotes"
        case _:
            return f"{path}: {str(problem['msg']).removeprefix('Value error, ')}"


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
        for address in site.bootstrap_addresses():
            owner = owners.setdefault(address, site.name)
            if owner != site.name:
                where = f"sites.{site.name}.bootstrap_servers"
                yield f"{where}: {address} is site {owner}'s; each site is a cluster of its own"


def _broker_problems(configuration: Configuration) -> list[str]:
    """Brokers that could not run beside each other, or of which it is not known where they listen."""
    problems = []
    folders: dict[Path, str] = {}
    for name, site in configuration.model.sites.items():
        if site.broker is None:
            continue
        if broker_address(site) is None:
            problems.append(f"sites.{name}.broker.listen: is missing; bootstrap_servers names more than one address")
        else:
            try:
                configuration.broker_config(name)
            except ValueError as error:
                problems.append(f"sites.{name}.broker: {error}")
        folder = configuration.path(site.broker.data_dir).resolve()
        if folder in folders:
            problems.append(
                f"sites.{name}.broker.data_dir: site {folders[folder]} has the same folder; give each its own"
            )
        folders.setdefault(folder, name)
    return problems
