"""Every failure that this program names: one tree, each class with a stable code and its data.

The codes are those of the HTTP endpoint's problem documents; which HTTP status a
code has is the api's business and stands in its one table.
"""

from __future__ import annotations

from typing import ClassVar


class AgentpodError(Exception):
    """Base of every expected failure; `str()` of it is a sentence for a person."""

    code: ClassVar[str] = "internal_error"


class Invalid(AgentpodError):
    """A field of a request cannot be accepted. `loc` is its path, as pydantic writes it.

    `more` are the other fields that cannot be, each with its path and the reason.
    """

    code = "invalid"

    def __init__(
        self, loc: tuple[str | int, ...], msg: str, *, more: tuple[tuple[tuple[str | int, ...], str], ...] = ()
    ) -> None:
        super().__init__(f"{'.'.join(map(str, loc)) or 'body'}: {msg}")
        self.loc = loc
        self.msg = msg
        self.more = more


class MalformedJson(AgentpodError):
    """A body is no JSON text, or one that different readers would read differently."""

    code = "malformed_json"


class MalformedHttp(AgentpodError):
    """What came over the connection is no HTTP request that can be read."""

    code = "malformed_http"


class BodyTooLarge(AgentpodError):
    """A body is over the configured limit; it was not read to its end."""

    code = "body_too_large"


class BodyTooSlow(AgentpodError):
    """A body did not come to its end in time."""

    code = "body_too_slow"


class UnsupportedMediaType(AgentpodError):
    """A body is not plain UTF-8 `application/json`."""

    code = "unsupported_media_type"


class Unauthorized(AgentpodError):
    """A call carries no token, or one that is not configured."""

    code = "unauthorized"


class HostNotAllowed(AgentpodError):
    """A call names no host, or one that is not ours: a page of another site may be behind it."""

    code = "host_not_allowed"


class OriginNotAllowed(AgentpodError):
    """A call comes from a page in a browser."""

    code = "origin_not_allowed"


class TooLarge(AgentpodError):
    """The question does not fit into a room, whatever is cut. `field` names what is too large."""

    code = "too_large"

    def __init__(self, field: str, msg: str) -> None:
        super().__init__(msg)
        self.field = field


class NotFound(AgentpodError):
    """No such request of this client; another client's request looks the same."""

    code = "not_found"


class Forbidden(AgentpodError):
    """The token is good, but what it asks for is not among what it may do."""

    code = "forbidden"


class Conflict(AgentpodError):
    """The request is in a state that rules the call out. `row` names the question to show."""

    code = "conflict"

    def __init__(self, row: int, msg: str) -> None:
        super().__init__(msg)
        self.row = row


class RequestIdReused(Conflict):
    """An open request has this id and other content."""

    code = "request_id_reused"


class RequestClosed(Conflict):
    """The request was closed before."""

    code = "request_closed"


class NotDecided(Conflict):
    """The call needs a decided request, and this one is not."""

    code = "not_decided"


class TooManyPending(AgentpodError):
    """A cap on open requests is reached. `scope` is session, token, route or daemon."""

    code = "too_many_pending"

    def __init__(self, scope: str, limit: int) -> None:
        super().__init__(f"there are already {limit} open requests for this {scope}")
        self.scope = scope
        self.limit = limit


class TooManyRequests(AgentpodError):
    """This token asked more often than its rate allows; it may again after `retry_after_s` seconds."""

    code = "too_many_requests"

    def __init__(self, retry_after_s: int) -> None:
        super().__init__("this token asks more often than it may")
        self.retry_after_s = retry_after_s


class TooManyWaits(AgentpodError):
    """This token already holds as many waiting calls as it may."""

    code = "too_many_waits"


class Unavailable(AgentpodError):
    """Nobody could be asked now; nothing was stored. `retry_after_s` is a hint, not a promise."""

    code = "matrix_unavailable"

    def __init__(self, msg: str, *, retry_after_s: int = 10) -> None:
        super().__init__(msg)
        self.retry_after_s = retry_after_s


class NoApprover(Unavailable):
    """The route has no approver."""

    code = "no_approver"


class ApproverNotInRoom(Unavailable):
    """Fewer approvers are joined to the room than a decision needs."""

    code = "approver_not_in_room"


class NotInRoom(Unavailable):
    """The bot is not joined to the route's room."""

    code = "not_in_room"


class RoomEncryptedWithoutCrypto(Unavailable):
    """The room is encrypted and this bot cannot encrypt; it never sends clear text there."""

    code = "room_encrypted_without_crypto"


class RoomReplaced(Unavailable):
    """The room was upgraded; the configuration still names the old one, and the route does not follow, or not yet."""

    code = "room_replaced"


class StoreUnavailable(Unavailable):
    """The store cannot be written now (full disk, locked file); nothing was half-done."""

    code = "store_unavailable"


class ShuttingDown(Unavailable):
    """The daemon is stopping; the request stays. `row` names the question the call waited on."""

    code = "shutting_down"

    def __init__(self, row: int | None) -> None:
        super().__init__("the daemon is stopping; the request stays open", retry_after_s=5)
        self.row = row


class MatrixError(AgentpodError):
    """Base of what the homeserver can answer instead of what was asked."""

    code = "matrix_error"


class RateLimited(MatrixError):
    """429. The same call may be repeated after `retry_after_ms`."""

    code = "rate_limited"

    def __init__(self, retry_after_ms: int) -> None:
        super().__init__(f"the homeserver asks to wait {retry_after_ms} ms")
        self.retry_after_ms = retry_after_ms


class HomeserverUnavailable(MatrixError):
    """No usable answer (cut, timed out, 5xx, a proxy's page). The same call may be repeated."""

    code = "homeserver_unavailable"

    def __init__(self, msg: str, *, status: int | None = None) -> None:
        super().__init__(msg)
        self.status = status


class TokenRefused(MatrixError):
    """The homeserver no longer knows the access token (`M_UNKNOWN_TOKEN`, `M_MISSING_TOKEN`)."""

    code = "token_refused"

    def __init__(self, *, soft_logout: bool) -> None:
        super().__init__("the homeserver refuses the bot's access token")
        self.soft_logout = soft_logout


class Refused(MatrixError):
    """The homeserver will never accept this call (403, 404, bad JSON, too large)."""

    code = "refused"

    def __init__(self, errcode: str, msg: str = "", *, status: int | None = None) -> None:
        super().__init__(f"{errcode}: {msg}" if msg else errcode)
        self.errcode = errcode
        self.status = status


class CannotStart(AgentpodError):
    """The process cannot run; `exit_code` is one of the documented ones (69, 70, 77, 78)."""

    code = "cannot_start"
    exit_code: ClassVar[int] = 70


class ConfigurationError(CannotStart):
    """The configuration cannot be used. `problems` are lines for a person, one per fault."""

    code = "configuration"
    exit_code = 78

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class CredentialsRefused(CannotStart):
    """The homeserver refuses the bot's password or token at start or login."""

    code = "credentials_refused"
    exit_code = 77


class CryptoStoreRefused(CannotStart):
    """The keys of the bot's device are lost, are another device's, or cannot be read; no new ones are made silently."""

    code = "crypto_store_refused"
    exit_code = 77


class CrossSigningRefused(CannotStart):
    """The bot's device cannot be cross-signed by the bot alone; `str()` of it says what a person can do."""

    code = "cross_signing_refused"
    exit_code = 77


class HomeserverUnreachable(CannotStart):
    """`login` and `demo` need the homeserver now and cannot reach it."""

    code = "homeserver_unreachable"
    exit_code = 69


class StoreRefused(CannotStart):
    """The store may not be opened: newer schema, or another process has it."""

    code = "store_refused"
    exit_code = 78
