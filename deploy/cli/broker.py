"""`farshore broker run`: one broker in the foreground, until SIGINT or SIGTERM."""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, TypeAlias

import click
import uvloop

from broker.access.users import new_credentials, read_users, write_users
from broker.base.address import Address
from broker.base.garbage import passing_over_what_stays
from broker.base.reloaded import AccessInvalid
from broker.client.errors import AccessRefused, SecurityInvalid
from broker.config import BrokerConfig
from broker.descriptors import raise_soft_limit
from broker.errors import BrokerError
from broker.http.errors import FaceError
from broker.http.face import http_face
from broker.http.registry import page_of
from broker.http.settings import FaceSettings
from broker.metrics import broker_registry
from broker.server import Server, serving
from deploy.cli.lines import filled_for_people
from deploy.cli.parameters import HostPort

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
FAILED: Final = 1
# And what turns the direction of writing.
_CONTROLS: Final = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u2028-\\u202e\\u2066-\\u2069]")

log = logging.getLogger(__name__)


class SiteConfigs(Protocol):
    """What `--site` needs of the composition root (`ctx.obj`)."""

    def broker_config(self, site: str, node_id: int | None = None) -> BrokerConfig:
        """Raises click.UsageError for a site that is not known, or has no such broker."""
        ...

    def broker_metrics(self, site: str, node_id: int | None = None) -> FaceSettings | None:
        """Where such a broker shows its metrics; None: nowhere."""
        ...


_ExceptionInfo: TypeAlias = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class _OneLine(logging.Formatter):
    """Names come from clients and the metadata: a line break in one would begin a line that nobody here wrote."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return _in_one_line(super().formatMessage(record))

    def formatException(self, ei: _ExceptionInfo) -> str:
        return _marked(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:
        return _marked(super().formatStack(stack_info))


def _in_one_line(text: str) -> str:
    return _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text)


def _marked(text: str) -> str:
    return "\n".join(f"  | {_in_one_line(line)}" for line in text.split("\n"))


def log_lines() -> logging.Formatter:
    """Each message in one line; a traceback has lines of its own behind it, each after a mark."""
    return _OneLine("%(asctime)s %(levelname)s %(name)s: %(message)s")


@click.group()
def broker() -> None:
    """Run farshore's own Kafka broker."""


@broker.command()
@click.option("--site", help="Take the settings from this site's [sites.NAME.broker] in farshore.toml.")
@click.option(
    "--node-id", type=click.IntRange(0), help="Which of the site's [[sites.NAME.brokers]], where it has several."
)
@click.option("--data-dir", type=click.Path(file_okay=False, path_type=Path), help="Where the broker keeps everything.")
@click.option("--listen", type=HostPort(), help="Address to listen on; port 0 takes a free one. [127.0.0.1:9092]")
@click.option("--advertised", type=HostPort(), help="Address to tell to clients, where it differs (NAT, 0.0.0.0).")
@click.pass_context
def run(
    ctx: click.Context,
    site: str | None,
    node_id: int | None,
    data_dir: Path | None,
    listen: Address | None,
    advertised: Address | None,
) -> None:
    """Run one broker in the foreground.

    With --data-dir it needs no configuration file; with --site the other options change what the file says.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(log_lines())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    try:
        config = _config(ctx, (site, node_id), data_dir, listen, advertised)
        if config.zookeeper is not None:
            # What a broker of a cluster led, and with whom, is asked when the others are gone.
            for ours in ("broker", log.name):
                logging.getLogger(ours).setLevel(logging.INFO)
        raise_soft_limit()
        sites: SiteConfigs = ctx.obj
        face = None if site is None else sites.broker_metrics(site, node_id)
        _run_until_stopped(config, face, _say_ready)
    except (BrokerError, AccessInvalid, FaceError, AccessRefused, SecurityInvalid) as error:
        click.echo(f"{filled_for_people(f'error: {error}')}\n{filled_for_people(f'hint: {error.hint}')}", err=True)
        ctx.exit(FAILED)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


@broker.command()
@click.option(
    "--file", required=True, type=click.Path(dir_okay=False, path_type=Path), help="The broker's sasl_users_file."
)
@click.option("--name", required=True, help="Who logs in.")
@click.option("--remove", is_flag=True, help="Take the user out, in place of giving a password.")
@click.pass_context
def user(ctx: click.Context, file: Path, name: str, remove: bool) -> None:
    """Give a user of a broker a password, or take the user out.

    The password is one line of standard input, and does not stand in the file. A broker that runs takes the change for
    the next login; who is logged in stays so until the session ends.
    """
    try:
        users = dict(read_users(file)) if file.exists() else {}
        if remove:
            if users.pop(name, None) is None:
                raise AccessInvalid(f"there is no user {name!r} in {file}", hint="look for the name in the file")
        else:
            users[name] = new_credentials(_password(name))
        write_users(file, users)
    except (BrokerError, AccessInvalid) as error:
        click.echo(f"{filled_for_people(f'error: {error}')}\n{filled_for_people(f'hint: {error.hint}')}", err=True)
        ctx.exit(FAILED)
    except OSError as error:
        text = f"error: {file} cannot be written: {error.strerror}"
        click.echo(f"{filled_for_people(text)}\nhint: look at its folder", err=True)
        ctx.exit(FAILED)
    click.echo(f"user {name} {'is out of' if remove else 'stands in'} {file}")


def _password(name: str) -> str:
    if not name:
        raise click.UsageError("--name is empty")
    if sys.stdin.isatty():
        given: str = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
        return given
    line = sys.stdin.readline().rstrip("\r\n")
    if not line:
        raise click.UsageError("standard input has no password: write it there, on one line")
    return line


def _config(
    ctx: click.Context,
    which: tuple[str | None, int | None],
    data_dir: Path | None,
    listen: Address | None,
    advertised: Address | None,
) -> BrokerConfig:
    """`which`: a site, and a broker of it."""
    site, node_id = which
    given: dict[str, Any] = {}
    if data_dir is not None:
        given["data_dir"] = data_dir
    if listen is not None:
        given |= {"listen_host": listen[0], "listen_port": listen[1]}
    if advertised is not None:
        given |= {"advertised_host": advertised[0], "advertised_port": advertised[1]}
    if site is not None:
        sites: SiteConfigs = ctx.obj
        return replace(sites.broker_config(site, node_id), **given)
    if node_id is not None:
        raise click.UsageError("--node-id names a broker of a site: give --site NAME too")
    if data_dir is None:
        raise click.UsageError("give --data-dir DIR, or --site NAME with a farshore.toml")
    return BrokerConfig(**given)


def _say_ready(config: BrokerConfig, cluster_id: str, address: str) -> None:
    """One line on stderr, for people and for those who wait for it. The address is the one to connect to."""
    click.echo(f"broker {config.node_id} of cluster {cluster_id} listening on {address}", err=True)


@asynccontextmanager
async def _shown(server: Server, face: FaceSettings | None) -> AsyncIterator[str | None]:
    """Its metrics, while the context is open: the URL. Raises FaceError, AccessInvalid, SecretUnreadable."""
    if face is None:
        yield None
        return
    async with http_face(face, page_of(broker_registry(server))) as url:
        yield url


def _run_until_stopped(
    config: BrokerConfig, face: FaceSettings | None, ready: Callable[[BrokerConfig, str, str], None]
) -> None:
    async def main() -> None:
        stop, is_ready = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()
        starting = asyncio.current_task()
        assert starting is not None

        def stopped() -> None:
            log.info("told to stop")
            # A start may wait for others for ever, and there is nothing to hand over yet.
            if not is_ready.is_set() and not stop.is_set():
                starting.cancel()
            stop.set()

        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, stopped)
        try:
            async with serving(config) as server, _shown(server, face) as url:
                is_ready.set()
                log.info("serves clients on %s", server.address)
                ready(config, server.broker.cluster_id, server.address)
                if url is not None:
                    click.echo(f"metrics on {url}", err=True)
                await stop.wait()
        except asyncio.CancelledError:
            if not stop.is_set():
                raise

    with passing_over_what_stays(time.monotonic), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
