"""The settings: what the configuration says, checked, with the units in the names.

A field's alias, where it has one, is its key in the file. Read by the loader (with a
`Written` as context), texts are parsed; built in code, the plain values are taken:
milliseconds, bytes, `Listen`, `Path`.
"""

from __future__ import annotations

import os
from collections.abc import Callable  # noqa: TC003 - pydantic reads annotations while running
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    SecretStr,
    Strict,
    ValidationInfo,
    model_validator,
)

from agentpod_bot.config import consistency, reach, values
from agentpod_bot.config.fault import nearest
from agentpod_bot.core.ids import RouteName, UserId
from agentpod_bot.core.policy import Escalation  # noqa: TC001 - as below
from agentpod_bot.core.quiet import QuietHours  # noqa: TC001 - pydantic reads annotations while running

T = TypeVar("T")

KNOWN_HARNESSES = (
    "native",
    "acp",
    "claude-code",
    "claude-prompt",
    "codex",
    "codex-hook",
    "copilot",
    "cursor",
    "gaia",
    "gemini",
    "langchain",
    "open-science",
    "opencode",
    "qwen",
)
"""Request shapes that this version understands."""
FOREVER = "forever"
MAX_SOCKET_PATH_BYTES = 107
"""Longest path of a Unix socket on Linux (`sun_path` less its final NUL)."""


@dataclass(frozen=True, slots=True)
class Written:
    """Context of a validation: the values are as a person wrote them; paths are relative to `folder`."""

    folder: Path


def text(read: Callable[[str], T]) -> BeforeValidator:
    """A value that is written as a text and read by `read`."""

    def check(value: object) -> T:
        if not isinstance(value, str):
            raise ValueError("is no text; put it in quotes")  # noqa: TRY004 - pydantic collects ValueError only
        return read(value)

    return BeforeValidator(check)


def quantity(read: Callable[[str], int], *, least: str, most: str, forever: bool = False) -> BeforeValidator:
    """A number with a unit, between two bounds. Code gives the bare number instead, at its own discretion.

    With `forever`, that word is taken too: it is None.
    """

    def check(value: object, info: ValidationInfo) -> int | None:
        if forever and (value == FOREVER or (value is None and info.context is None)):
            return None
        if isinstance(value, int) and not isinstance(value, bool) and info.context is None and value > 0:
            return value
        if not isinstance(value, str):
            raise ValueError(f"has no unit; write something like {least}")  # noqa: TRY004 - as above
        number = read(value)
        if number < read(least):
            raise ValueError(f"is less than {least}")
        if number > read(most):
            raise ValueError(f"is more than {most}")
        return number

    return BeforeValidator(check)


def listed(value: object) -> object:
    """A list, and nothing that merely looks like one: a bare text would be read letter by letter."""
    if isinstance(value, str):
        raise ValueError('is one text; write a list: ["…"]')  # noqa: TRY004 - as above
    if not isinstance(value, list | tuple):
        raise ValueError('is no list; write ["…"]')  # noqa: TRY004 - as above
    return tuple(value)


def distinct(items: tuple[T, ...]) -> tuple[T, ...]:
    """A list that names nothing twice."""
    if len(set(items)) != len(items):
        raise ValueError("names something twice")
    return items


def some(items: tuple[T, ...]) -> tuple[T, ...]:
    """A list that is not empty."""
    if not items:
        raise ValueError("is empty; name at least one")
    return items


def read_path(value: object, info: ValidationInfo) -> Path:
    """A path; a relative one counts from the configuration file's folder."""
    if isinstance(value, Path):
        return value
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError("is no path")
    if value.startswith("~"):
        raise ValueError("begins with ~, which is not expanded here; write the whole path")
    return info.context.folder / value if isinstance(info.context, Written) else Path(value)


def read_listen(value: object) -> values.Listen:
    """An address as text, or as it is."""
    if isinstance(value, values.Listen):
        return value
    if not isinstance(value, str):
        raise ValueError("is no address; write host:port in quotes")  # noqa: TRY004 - as above
    return values.listen(value)


def read_power_level(value: object) -> values.PowerLevel:
    """A least power level as text, or as it is."""
    if isinstance(value, values.PowerLevel):
        return value
    if not isinstance(value, str):
        raise ValueError("is no text; write power_level >= 50 in quotes")  # noqa: TRY004 - as above
    return values.power_level(value)


def read_rate(value: object) -> values.Rate:
    """A rate as text, or as it is."""
    if isinstance(value, values.Rate):
        return value
    if not isinstance(value, str):
        raise ValueError("is no text; write 60/min in quotes")  # noqa: TRY004 - as above
    return values.rate(value)


def short_enough(path: Path) -> Path:
    """A path that the kernel takes as a socket's address."""
    if len(str(path).encode()) > MAX_SOCKET_PATH_BYTES:
        raise ValueError(f"is longer than the {MAX_SOCKET_PATH_BYTES} bytes that a Unix socket's path may have")
    return path


def no_folder(path: Path) -> Path:
    """A path at which no folder stands."""
    if os.path.isdir(path):  # noqa: PTH112 - unlike Path.is_dir it raises nothing where the path cannot be looked at
        raise ValueError(f"is a folder; name a file in it, like {path / 'agentpod.db'}")
    return path


def known_harness(name: str) -> str:
    """The name of a harness that this version understands."""
    if name not in KNOWN_HARNESSES:
        raise ValueError(f"is no known harness; known are {', '.join(KNOWN_HARNESSES)}{nearest(name, KNOWN_HARNESSES)}")
    return name


def listen_unless_socket(given: Any) -> Any:
    """Where a socket is given and no address, there is no default address."""
    if isinstance(given, dict) and given.get("socket") is not None and "listen" not in given:
        return {**given, "listen": None}
    return given


A_LIST = BeforeValidator(listed)
DISTINCT = AfterValidator(distinct)
SOME = AfterValidator(some)

FilePath = Annotated[Path, BeforeValidator(read_path)]
Mxid = Annotated[UserId, text(values.user_id)]
Harness = Annotated[str, text(known_harness)]


class Section(BaseModel):
    """What every part of the settings is: frozen, closed to unknown keys, silent about its values."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        validate_by_alias=True,
        validate_by_name=True,
        hide_input_in_errors=True,
    )


@dataclass(frozen=True, slots=True)
class Chosen:
    """Marks a secret that a person chose, like a password: any line of text, however short."""


class HomeserverSettings(Section):
    """The bot's account. `agents` are other accounts whose messages never are answers."""

    url: Annotated[str, text(values.homeserver_url)] = Field(description="the homeserver's base URL")
    user_id: Mxid = Field(description="the bot's own account, @localpart:server")
    device_id: Annotated[str, text(values.device_id)] | None = None
    access_token_file: FilePath | None = None
    access_token: SecretStr
    password_file: FilePath | None = None
    password: Annotated[SecretStr | None, Chosen()] = None
    """To log in again with, on the same device, where the homeserver lets a session lapse."""
    refresh_token_file: FilePath | None = None
    refresh_token: SecretStr | None = None
    """To exchange for a new access token; each use gives another one, which goes into the file."""
    agents: Annotated[tuple[Mxid, ...], A_LIST, DISTINCT] = ()


class HttpSettings(Section):
    """Where harnesses call. Exactly one of `listen` and `socket` is not None."""

    listen: Annotated[values.Listen, BeforeValidator(read_listen)] | None = values.Listen("127.0.0.1", 8470)
    socket: Annotated[FilePath, AfterValidator(short_enough)] | None = None
    allow_remote: Annotated[bool, Strict()] = False
    allowed_hosts: Annotated[tuple[Annotated[str, text(values.host_name)], ...], A_LIST, DISTINCT] = ()
    body_limit: Annotated[int, quantity(values.size_bytes, least="1KiB", most="64MiB")] = 1024 * 1024
    """In bytes."""
    max_waits_per_token: Annotated[int, Strict(), Field(ge=1, le=10_000)] = 200

    @model_validator(mode="before")
    @classmethod
    def _one_place(cls, given: Any) -> Any:
        return listen_unless_socket(given)


class ClientSettings(Section):
    """One holder of a token: the routes and the request shapes that it may use."""

    token_file: FilePath | None = None
    token: SecretStr
    routes: Annotated[tuple[Annotated[RouteName, text(RouteName)], ...], A_LIST, DISTINCT, SOME] = Field(
        description="the routes that this client may ask on"
    )
    requester: Mxid | None = None
    """The person for whom this client asks."""
    harnesses: Annotated[tuple[Harness, ...], A_LIST, DISTINCT, SOME] = ("native",)
    codex_version: Annotated[str, text(values.release)] | None = None
    """Version of the Codex that asks, where its calls do not say it."""
    rate: Annotated[values.Rate, BeforeValidator(read_rate)] | None = None
    callback_url: Annotated[str, text(values.callback_url)] | None = None
    """Where each outcome is posted; nowhere where it is None."""
    callback_secret_file: FilePath | None = None
    callback_secret: SecretStr | None = None
    callback_old_secret_file: FilePath | None = None
    callback_old_secret: SecretStr | None = None
    """A second secret to sign with, while receivers change from one to the other."""
    callback_allow_private: Annotated[bool, Strict()] = False


class RouteSettings(Section):
    """One place to ask: a room and the people whose answers count there."""

    room: Annotated[str, text(values.room)] = Field(description="the room's id or alias")
    """A room id, or an alias that is resolved once at start."""
    approvers: Annotated[tuple[Mxid, ...], A_LIST, DISTINCT, SOME] = Field(
        description="the exact Matrix user ids of those who may answer"
    )
    approvers_from: Annotated[values.PowerLevel, BeforeValidator(read_power_level)] | None = None
    quorum: Annotated[int, Strict(), Field(ge=1, le=20)] = 1
    not_requester: Annotated[bool, Strict()] = False
    when_unanswered: Literal["deny", "terminal"] = "deny"
    follow_upgrades: Annotated[bool, Strict()] = False
    harnesses: Annotated[tuple[Harness, ...], A_LIST, DISTINCT, SOME] = KNOWN_HARNESSES
    reactions: Literal["seed", "accept", "off"] = "seed"
    max_pending: Annotated[int, Strict(), Field(ge=1, le=10_000)] = 50
    mask_secrets: Annotated[bool, Strict()] = True
    remind_before_ms: Annotated[int, quantity(values.duration_ms, least="1s", most="30d")] | None = Field(
        None, alias="remind_before"
    )
    escalate: Annotated[InstanceOf[Escalation], BeforeValidator(reach.escalation)] | None = None
    quiet_hours: Annotated[InstanceOf[QuietHours], BeforeValidator(reach.quiet_hours)] | None = None


class RequestsSettings(Section):
    """How long questions live, and how many may be open."""

    time_to_live_ms: Annotated[int, quantity(values.duration_ms, least="1s", most="30d")] = Field(
        30 * 60_000, alias="time_to_live"
    )
    max_time_to_live_ms: Annotated[int, quantity(values.duration_ms, least="1s", most="30d")] = Field(
        24 * 3_600_000, alias="max_time_to_live"
    )
    # A day at least: a question's code is not used again within a day of it, which only the store remembers.
    retention_ms: Annotated[int, quantity(values.duration_ms, least="1d", most="3650d")] = Field(
        7 * 86_400_000, alias="retention"
    )
    max_pending_per_session: Annotated[int, Strict(), Field(ge=1, le=10_000)] = 10
    max_pending_per_token: Annotated[int, Strict(), Field(ge=1, le=10_000)] = 30
    max_pending: Annotated[int, Strict(), Field(ge=1, le=100_000)] = 500


class AuditSettings(Section):
    """The record of who decided what."""

    retention_ms: Annotated[int | None, quantity(values.duration_ms, least="1d", most="36500d", forever=True)] = Field(
        400 * 86_400_000, alias="retention"
    )
    """None: for ever."""


class StoreSettings(Section):
    """The database."""

    path: Annotated[FilePath, AfterValidator(no_folder)] = Path("/var/lib/agentpod-bot/agentpod.db")


class E2eSettings(Section):
    """Encrypted rooms: the keys of the bot's device, and whose answers count there."""

    store: FilePath | None = None
    """The folder with the device's keys; None: `crypto` beside the store."""
    pickle_key_file: FilePath | None = None
    pickle_key: SecretStr | None = None
    """What the keys are encrypted with where they are kept; None: the bot cannot encrypt."""
    trust: Literal["all", "approvers-verified", "verified"] = "all"


class LogSettings(Section):
    """What is logged, and how."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "json", "console"] = "auto"


def crypto_folder(store: Path, named: Path | None) -> Path:
    """Where the keys of the bot's device are: where `e2e.store` says, else beside the store."""
    return store.parent / "crypto" if named is None else named


class Settings(Section):
    """The whole configuration. Names are keys: of clients as the room shows them, of routes as requests name them."""

    homeserver: HomeserverSettings
    http: HttpSettings = HttpSettings()
    clients: dict[str, ClientSettings]
    routes: dict[str, RouteSettings]
    requests: RequestsSettings = RequestsSettings()
    audit: AuditSettings = AuditSettings()
    store: StoreSettings = StoreSettings()
    e2e: E2eSettings = E2eSettings()
    log: LogSettings = LogSettings()

    @property
    def crypto_folder(self) -> Path:
        """Where the keys of the bot's device are."""
        return crypto_folder(self.store.path, self.e2e.store)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        parts = consistency.Parts(
            homeserver=dict(self.homeserver),
            http=dict(self.http),
            clients={name: dict(client) for name, client in self.clients.items()},
            routes={name: dict(route) for name, route in self.routes.items()},
            requests=dict(self.requests),
            e2e=dict(self.e2e),
            route_names=frozenset(self.routes),
        )
        if faults := [str(fault) for fault in consistency.faults(parts)]:
            raise ValueError("; ".join(faults))
        return self
