"""How the values of the configuration are written: durations, sizes, addresses, Matrix identifiers.

Each reader takes the text as a person wrote it and gives the value, or raises `ValueError`
with the rest of a sentence that begins with the key. Nothing is ever normalised that
another machine compares exactly.
"""

from __future__ import annotations

import base64
import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from agentpod_bot.core.ids import UserId

DURATION_UNITS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000}
"""Milliseconds of each unit, the largest first."""
SIZE_UNITS = {"GiB": 1024**3, "MiB": 1024**2, "KiB": 1024, "B": 1}
"""Bytes of each unit, the largest first."""
RATE_UNITS = {"s": 1_000, "min": 60_000, "h": 3_600_000}
"""Milliseconds of each unit of time that a rate may have."""
MAX_ID_BYTES = 255
"""Length that the Matrix specification allows for user ids, room ids and aliases."""
MAX_PORT = 65_535
MAX_HOST = 253
MAX_NAME = 64
MAX_POWER_LEVEL = 2**53 - 1
WEBHOOK_PREFIX = "whsec_"
WEBHOOK_KEY_BYTES = (24, 64)

DURATION = re.compile(r"([0-9]{1,9})(d|h|m|s)")
SIZE = re.compile(r"([0-9]{1,9}) ?(GiB|MiB|KiB|B)")
HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")
RELEASE = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6}){1,3}([-+.][0-9A-Za-z.+-]{1,40})?")
SERVER_NAME = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]{2,45})\]|(?P<host>[A-Za-z0-9.-]{1,255}))(?::[0-9]{1,5})?")
"""`server_name` of the Matrix specification, appendix "Server name"."""
HISTORICAL_LOCALPART = re.compile(r"[!-9;-~]+")
"""Visible ASCII but `:`: what the specification's "historical user ids" may hold, upper case too."""
ROOM_PART = re.compile(r"[^\s:\x00-\x1f\x7f]+")
NAME = re.compile(r"[A-Za-z0-9]+(?:[-_][A-Za-z0-9]+)*")
RATE = re.compile(r"([0-9]{1,6})/(s|min|h)")
POWER_LEVEL = re.compile(r"power_level *>= *([0-9]{1,16})")
PLACEHOLDER = re.compile(r"CHANGE_ME|(?:^|[.:/@])example\.(?:com|net|org)(?![A-Za-z0-9.-])", re.IGNORECASE)


class Unshown(ValueError):
    """A value is refused that may hold a secret, so that no message may repeat it."""


@dataclass(frozen=True, slots=True)
class Listen:
    """A TCP address to listen on. `host` has no brackets; `str()` of it is as the file writes it."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it; a name other than `localhost` counts as remote."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host.lower() == "localhost"

    def __str__(self) -> str:
        """`host:port`, with brackets around an IPv6 address."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class PowerLevel:
    """A least power level in a room; `str()` of it is as the file writes it."""

    least: int

    def __str__(self) -> str:
        """`power_level >= 50`."""
        return f"power_level >= {self.least}"


@dataclass(frozen=True, slots=True)
class Rate:
    """So many in a unit of time; `str()` of it is as the file writes it."""

    count: int
    unit: str

    @property
    def per_ms(self) -> int:
        """The unit of time in milliseconds."""
        return RATE_UNITS[self.unit]

    def __str__(self) -> str:
        """`60/min`."""
        return f"{self.count}/{self.unit}"


def rate(text: str) -> Rate:
    """Read `1/s`, `60/min` or `500/h`."""
    found = RATE.fullmatch(text)
    if found is None:
        raise ValueError("is no rate; write a whole number, / and s, min or h: 1/s, 60/min, 500/h")
    if int(found[1]) == 0:
        raise ValueError("lets nothing through; remove the client instead")
    return Rate(int(found[1]), found[2])


def power_level(text: str) -> PowerLevel:
    """Read `power_level >= N`. Everybody has level 0 unless a room says otherwise, so N is at least 1."""
    found = POWER_LEVEL.fullmatch(text.strip())
    if found is None:
        raise ValueError("is no such rule; write power_level >= 50")
    if not 1 <= int(found[1]) <= MAX_POWER_LEVEL:
        raise ValueError(f"has a level that is not between 1 and {MAX_POWER_LEVEL}")
    return PowerLevel(int(found[1]))


def duration_ms(text: str) -> int:
    """Read `30s`, `30m`, `24h` or `7d` as milliseconds."""
    if found := DURATION.fullmatch(text):
        return int(found[1]) * DURATION_UNITS[found[2]]
    raise ValueError("is no duration; write a whole number and s, m, h or d: 30s, 30m, 24h, 7d")


def duration_text(milliseconds: int) -> str:
    """Write milliseconds as the file would: 24h rather than 1d or 1440m."""
    for unit, length in DURATION_UNITS.items():
        if milliseconds % length == 0 and milliseconds >= (2 * length if unit == "d" else length):
            return f"{milliseconds // length}{unit}"
    return f"{milliseconds}ms"


def size_bytes(text: str) -> int:
    """Read `512B`, `64KiB`, `1MiB` or `1GiB` as bytes."""
    if found := SIZE.fullmatch(text):
        return int(found[1]) * SIZE_UNITS[found[2]]
    raise ValueError("is no size; write a whole number and B, KiB, MiB or GiB: 64KiB, 1MiB")


def size_text(size: int) -> str:
    """Write bytes as the file would, in the largest unit that leaves a whole number."""
    unit, length = next((unit, length) for unit, length in SIZE_UNITS.items() if size % length == 0 and size >= length)
    return f"{size // length}{unit}"


def listen(text: str) -> Listen:
    """Read `host:port`; an IPv6 address stands in brackets."""
    host, colon, port = text.rpartition(":")
    if not colon or not re.fullmatch(r"[0-9]{1,5}", port):
        raise ValueError("is no address; write host:port, as in 127.0.0.1:8470 or [::1]:8470")
    if not 1 <= int(port) <= MAX_PORT:
        raise ValueError(f"has a port that is not between 1 and {MAX_PORT}")
    if host.startswith("[") and host.endswith("]"):
        try:
            return Listen(str(ipaddress.IPv6Address(host[1:-1])), int(port))
        except ValueError:
            raise ValueError("has no IPv6 address in its brackets") from None
    if ":" in host:
        raise ValueError("has an IPv6 address without brackets; write [::1]:8470")
    return Listen(host_name(host), int(port))


def host_name(text: str) -> str:
    """Read a host's name, or its IPv4 address, or its IPv6 address in brackets; without a port."""
    if text.startswith("[") and text.endswith("]"):
        try:
            return f"[{ipaddress.IPv6Address(text[1:-1])}]"
        except ValueError:
            raise ValueError("has no IPv6 address in its brackets") from None
    if len(text) > MAX_HOST or not HOST_NAME.fullmatch(text):
        raise ValueError("is no host name; write the bare name, without scheme, port or path")
    if re.fullmatch(r"[0-9.]+", text):
        try:
            ipaddress.IPv4Address(text)
        except ValueError:
            raise ValueError("is no IPv4 address") from None
    return text.lower()


def homeserver_url(text: str) -> str:
    """Read the base URL of a homeserver; given back without a slash at its end."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise Unshown("is no URL") from None
    if parts.username is not None or parts.password is not None:
        raise Unshown("holds a user name or a password; the only credential is the access token, in a file of its own")
    visible = text.isprintable() and " " not in text
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0 or not visible:
        raise ValueError("is no URL; write https://host, as the homeserver's .well-known names it")
    if parts.query or parts.fragment or "?" in text or "#" in text:
        raise ValueError("has a query or a fragment; write the base URL alone")
    return text.rstrip("/")


def callback_url(text: str) -> str:
    """Read the URL of a callback, exactly as written.

    No fault repeats it: whoever knows the path or the query of such a URL may be taken at their word.
    """
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise Unshown("is no URL") from None
    if parts.username is not None or parts.password is not None:
        raise Unshown("holds a user name or a password; callbacks are signed instead")
    visible = text.isascii() and text.isprintable() and not set(' \\"<>') & set(text)
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0 or not visible:
        raise Unshown("is no URL; write https://host/path")
    if "#" in text:
        raise Unshown("has a fragment, which no server is told")
    return text


def without_query(url: str) -> str:
    """A URL as a person may be shown it: of a query only that there is one."""
    base, mark, _ = url.partition("?")
    return f"{base}?***" if mark else base


def webhook_secret(text: str) -> bytes:
    """Read a secret as the Standard Webhooks specification writes it: `whsec_` and base64 of 24 to 64 bytes.

    The prefix may be left out. https://www.standardwebhooks.com
    """
    try:
        key = base64.b64decode(text.removeprefix(WEBHOOK_PREFIX), validate=True)
    except ValueError:
        raise Unshown("is no base64") from None
    if not WEBHOOK_KEY_BYTES[0] <= len(key) <= WEBHOOK_KEY_BYTES[1]:
        raise Unshown(f"has {len(key)} bytes; Standard Webhooks asks for 24 to 64: openssl rand -base64 32")
    return key


def user_id(text: str) -> UserId:
    """Read a full Matrix user id, `@localpart:server`, exactly as written.

    The historical grammar is taken, so upper-case localparts are kept as they are.
    https://spec.matrix.org/v1.16/appendices/#user-identifiers
    """
    if text in {"*", "@*", "@*:*"} or "*:" in text:
        raise ValueError("is a pattern; only exact user ids count, each written out: @localpart:server")
    localpart, colon, server = text.removeprefix("@").partition(":")
    if not text.startswith("@") or not colon:
        raise ValueError("is no full Matrix user id; write @localpart:server")
    if not HISTORICAL_LOCALPART.fullmatch(localpart):
        raise ValueError("is no Matrix user id: what stands before the colon is empty, or no user id may have it")
    if not is_server_name(server):
        raise ValueError("is no Matrix user id: what follows the first colon is no server name")
    if len(text.encode()) > MAX_ID_BYTES:
        raise ValueError(f"is no Matrix user id: it is longer than {MAX_ID_BYTES} bytes")
    return UserId(text)


def room(text: str) -> str:
    """Read a room id (`!…`, with or without a server part) or an alias (`#name:server`).

    Room ids are opaque: since room version 12 they have no server part, so only what
    could be no room id at all is refused.
    """
    if text[:1] not in {"!", "#"}:
        raise ValueError('is no room; write its id, "!…", or an alias, "#name:server", in quotes')
    name, colon, server = text[1:].partition(":")
    if not ROOM_PART.fullmatch(name):
        raise ValueError("is no room: nothing, or white space, stands where its name should")
    if colon and not is_server_name(server):
        raise ValueError("is no room: what follows the first colon is no server name")
    if text.startswith("#") and not colon:
        raise ValueError("is no room alias; write #name:server")
    if len(text.encode()) > MAX_ID_BYTES:
        raise ValueError(f"is no room: it is longer than {MAX_ID_BYTES} bytes")
    return text


def device_id(text: str) -> str:
    """Read a device id: opaque, but never long or with white space."""
    if not text or len(text) > MAX_ID_BYTES or not text.isprintable() or " " in text:
        raise ValueError("is no device id")
    return text


def release(text: str) -> str:
    """Read a version like 0.171.0 or 0.145.0-alpha.3."""
    if not RELEASE.fullmatch(text):
        raise ValueError("is no version; write it like 0.171.0")
    return text


def is_server_name(text: str) -> bool:
    """Whether a text is a Matrix server name: a host or an address, and perhaps a port."""
    found = SERVER_NAME.fullmatch(text)
    if found is None:
        return False
    if found["v6"] is None:
        return True
    try:
        ipaddress.IPv6Address(found["v6"])
    except ValueError:
        return False
    return True


def name(text: str) -> str:
    """Read the name of a client or a route; it must fit into an environment variable's name."""
    if len(text) > MAX_NAME or not NAME.fullmatch(text):
        raise ValueError(
            f"is no name; use letters, digits and single - or _ between them, at most {MAX_NAME} characters"
        )
    return text


def is_placeholder(text: str) -> bool:
    """Whether a text was left as `config.example.yaml` has it: `CHANGE_ME`, or a host kept for examples."""
    return PLACEHOLDER.search(text) is not None
