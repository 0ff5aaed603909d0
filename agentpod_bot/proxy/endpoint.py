"""Where a running daemon listens, and the token to call it with."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from agentpod_bot.proxy.stopped import ExitCode, Stopped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentpod_bot.config.model import HttpSettings, Settings

URL = "AGENTPOD_BOT_URL"
SOCKET = "AGENTPOD_BOT_SOCKET"
TOKEN = "AGENTPOD_BOT_TOKEN"  # noqa: S105 - the name of a variable, no token
TOKEN_FILE = "AGENTPOD_BOT_TOKEN_FILE"  # noqa: S105 - likewise


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One daemon's endpoint. With a socket, `url` only fills the `Host` header."""

    url: str
    socket: Path | None = None
    token: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        """How a person finds it."""
        return str(self.socket or self.url)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line says about the endpoint; None: look further."""

    url: str | None = None
    socket: Path | None = None
    token_file: Path | None = None
    config: Path | None = None
    client: str | None = None


def find(wanted: Wanted, environ: Mapping[str, str], *, token: bool = True) -> Endpoint:
    """Find the endpoint: command line first, then environment, then the configuration file.

    A token of the configuration is only ever sent to the endpoint of the configuration.
    `token=False` asks for the address alone. Raises `Stopped` (2) where what is given
    contradicts itself or is not enough, `ConfigurationError` where the file is needed
    and faulty.
    """
    match wanted:
        case Wanted(url=str(), socket=Path()):
            raise Stopped(ExitCode.USAGE, "--url and --socket exclude each other")
        case Wanted(url=str(url)):
            place = Endpoint(checked(url))
        case Wanted(socket=Path() as socket):
            place = Endpoint("http://localhost", socket)
        case _ if from_environment := environ.get(URL):
            place = Endpoint(checked(from_environment))
        case _ if from_environment := environ.get(SOCKET):
            place = Endpoint("http://localhost", Path(from_environment))
        case _:
            return configured(wanted, environ, token=token)
    if not token:
        return place
    secret = given_token(wanted, environ)
    if secret is None:
        raise Stopped(ExitCode.USAGE, f"no token for {place}: give --token-file, or set {TOKEN_FILE} or {TOKEN}")
    return Endpoint(place.url, place.socket, secret)


def configured(wanted: Wanted, environ: Mapping[str, str], *, token: bool) -> Endpoint:
    """The endpoint that the configuration file describes, with its client's token."""
    from agentpod_bot.config.load import load  # noqa: PLC0415 - slow to import, and not every command needs it

    settings = load(wanted.config, environ).settings
    place = listener(settings.http)
    if not token:
        return place
    return Endpoint(place.url, place.socket, given_token(wanted, environ) or client_token(settings, wanted.client))


def listener(http: HttpSettings) -> Endpoint:
    """The address at which a configured daemon is reached from its own machine."""
    if http.socket is not None:
        return Endpoint("http://localhost", http.socket)
    if http.listen is None:
        raise Stopped(ExitCode.CONFIGURATION, "the configuration says nowhere where the daemon listens")
    return Endpoint(f"http://{reachable(http.listen.host)}:{http.listen.port}")


def reachable(host: str) -> str:
    """A host as a URL names it; "every address" is called on the loopback one."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.is_unspecified:
        return "127.0.0.1" if address.version == 4 else "[::1]"  # noqa: PLR2004 - IP versions
    return f"[{address}]" if address.version == 6 else str(address)  # noqa: PLR2004 - likewise


def given_token(wanted: Wanted, environ: Mapping[str, str]) -> str | None:
    """The token that the command line or the environment gives; a file goes before a value.

    Raises `Stopped` (2) where the environment's would go before that of the client which the
    command line names: the question would stand in the room under another client's name.
    """
    if wanted.token_file is not None:
        return token_in(wanted.token_file)
    variable = next((name for name in (TOKEN_FILE, TOKEN) if environ.get(name)), None)
    if wanted.client is not None and variable is not None:
        raise Stopped(ExitCode.USAGE, f"--client and {variable} exclude each other: unset it, or leave --client out")
    if path := environ.get(TOKEN_FILE):
        return token_in(Path(path))
    token = environ.get(TOKEN)
    return checked_token(token, f"the variable {TOKEN}") if token else None


def token_in(path: Path) -> str:
    """The token that a file holds, without the white space around it."""
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as fault:
        reason = fault.strerror if isinstance(fault, OSError) else "it is not UTF-8 text"
        raise Stopped(ExitCode.CONFIGURATION, f"cannot read the token file {path}: {reason}") from fault
    if not token:
        raise Stopped(ExitCode.CONFIGURATION, f"the token file {path} is empty")
    return checked_token(token, f"the token file {path}")


def checked_token(token: str, source: str) -> str:
    """A token that a header can carry. Raises `Stopped` (78) for any other; it is never repeated."""
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise Stopped(ExitCode.CONFIGURATION, f"{source} holds no token: it must be one word of visible ASCII")
    return token


def client_token(settings: Settings, name: str | None) -> str:
    """The token of a configured client: the named one, or the only one."""
    names = ", ".join(sorted(settings.clients))
    match name, tuple(settings.clients):
        case None, (only,):
            chosen = only
        case None, ():
            raise Stopped(ExitCode.CONFIGURATION, "the configuration names no client: give --token-file")
        case None, _:
            raise Stopped(ExitCode.USAGE, f"the configuration names several clients, choose one with --client: {names}")
        case str(chosen), configured_names if chosen in configured_names:
            pass
        case _:
            raise Stopped(ExitCode.USAGE, f'the configuration names no client "{name}"; it names: {names}')
    return settings.clients[chosen].token.get_secret_value()


def checked(url: str) -> str:
    """An HTTP address without path, query or user name, and without a slash at the end."""
    try:
        parts = urlsplit(url)
        fits = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        fits = False
    if not fits or parts.path not in {"", "/"} or parts.query or parts.fragment or parts.username is not None:
        raise Stopped(ExitCode.USAGE, "the address must look like http://127.0.0.1:8470, with nothing after the port")
    return f"{parts.scheme}://{parts.netloc}"
