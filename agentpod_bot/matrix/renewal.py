"""A new access token for the bot's own session, where the homeserver lets the old one lapse.

Formats: https://spec.matrix.org/v1.14/client-server-api/#refreshing-access-tokens and
#post_matrixclientv3login. No session is ever logged out here.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

import structlog

from agentpod_bot.config.written_back import write_back
from agentpod_bot.errors import MatrixError, Refused, TokenRefused
from agentpod_bot.matrix.client import DEADLINE_S, MatrixClient
from agentpod_bot.matrix.tokenless import LOGIN, REFRESH, post, text

if TYPE_CHECKING:
    from pathlib import Path

    from agentpod_bot.config.model import Settings
    from agentpod_bot.core.ids import UserId

DEVICE_NAME: Final = "agentpod-bot"
ENDED: Final = "somebody ended the session, so the password is not used; get a new access token: agentpod-bot login"

log = structlog.get_logger(__name__)

Renewed = Literal["renewed", "later", "never"]
"""How a try ended; "never" until somebody gives other secrets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What the bot's session is renewed with, and where what it gets is kept. None: not configured."""

    url: str
    user_id: UserId
    device_id: str | None = None
    """The device to keep."""
    access_token_file: Path | None = None
    password: str | None = field(default=None, repr=False)
    refresh_token: str | None = field(default=None, repr=False)
    refresh_token_file: Path | None = None


def session_of(settings: Settings) -> Session:
    """What the bot's own session is renewed with."""
    account = settings.homeserver
    password, refresh_token = account.password, account.refresh_token
    return Session(
        url=account.url,
        user_id=account.user_id,
        device_id=account.device_id,
        access_token_file=account.access_token_file,
        password=None if password is None else password.get_secret_value(),
        refresh_token=None if refresh_token is None else refresh_token.get_secret_value(),
        refresh_token_file=account.refresh_token_file,
    )


class Renewal:
    """Renews the client's token, one try at a time.

    A session that lapsed (`soft_logout`) is renewed with the refresh token, else by a login
    with the password on the same device. One that somebody ended is not logged in again:
    there only the refresh token is tried, which a homeserver takes for a living session alone.
    """

    def __init__(self, client: MatrixClient, session: Session, *, deadline_s: float = DEADLINE_S) -> None:
        self.lock = asyncio.Lock()
        """Held while tokens change; whoever reads the files meanwhile could read half of a change."""
        self._client = client
        self._session = session
        self._deadline_s = deadline_s
        self._refresh_token = session.refresh_token
        self._refused: set[str] = set()
        """Secrets to which the homeserver said no: an account that is asked again and again may be locked."""

    def replace(self, session: Session) -> None:
        """Take other secrets."""
        if session.refresh_token != self._session.refresh_token:
            self._refresh_token = session.refresh_token
        self._session = session
        self._refused.clear()

    async def renew(self) -> Renewed:
        """Have a good token in use; it is looked at first whether the one in use is dead at all."""
        async with self.lock:
            try:
                await self._client.whoami()
            except TokenRefused as refused:
                return await self._renewed(soft_logout=refused.soft_logout)
            except MatrixError:
                return "later"
            return "renewed"

    async def _renewed(self, *, soft_logout: bool) -> Renewed:
        ways = [self._refreshed] if self._refresh_token is not None else []
        if self._session.password is not None and soft_logout:
            ways.append(self._logged_in)
        for way in ways:
            try:
                if await way():
                    return "renewed"
            except (Refused, TokenRefused) as refused:
                log.error("session_not_renewed", by=way.__name__.strip("_"), error=str(refused))  # noqa: TRY400 - says all
            except MatrixError as error:
                log.warning("session_renewal_postponed", error=error.code)
                return "later"
            except OSError as error:
                # The old refresh token stays good until the new tokens are used: nothing is lost by trying again.
                log.error("session_not_kept", reason=error.strerror)  # noqa: TRY400 - says all
                return "later"
        if self._session.password is not None and not soft_logout:
            log.error("session_not_renewed", by="logged_in", error=ENDED)
        return "never"

    async def _refreshed(self) -> bool:
        token = self._refresh_token
        if token is None or token in self._refused:
            return False
        try:
            answer = await post(self._session.url, REFRESH, {"refresh_token": token}, deadline_s=self._deadline_s)
        except (Refused, TokenRefused):
            self._refused.add(token)
            raise
        access_token, further = text(answer, "access_token"), answer.get("refresh_token")
        if isinstance(further, str) and further:
            # First of all: once a new token was used, the old refresh token is worth nothing.
            await self._keep(self._session.refresh_token_file, further)
            self._refresh_token = further
        user_id, device_id = await account_of(
            self._session.url, self._session.user_id, access_token, deadline_s=self._deadline_s
        )
        if not self._is_own(user_id, device_id):
            self._refused.update({token, self._refresh_token or token})
            raise Refused("", "the refresh token is that of another account or device")
        await self._take(access_token)
        return True

    async def _logged_in(self) -> bool:
        password, device_id = self._session.password, self._session.device_id
        if password is None or device_id is None or password in self._refused:
            return False
        wanted: dict[str, Any] = {
            "type": "m.login.password",
            "identifier": {"type": "m.id.user", "user": self._session.user_id},
            "password": password,
            "device_id": device_id,
            "initial_device_display_name": DEVICE_NAME,
        }
        if self._session.refresh_token_file is not None:
            wanted["refresh_token"] = True
        try:
            answer = await post(self._session.url, LOGIN, wanted, deadline_s=self._deadline_s)
        except (Refused, TokenRefused):
            self._refused.add(password)
            raise
        if not self._is_own(answer.get("user_id"), answer.get("device_id")):
            self._refused.add(password)
            raise Refused("", "the login gave another account or device")
        further = answer.get("refresh_token")
        if isinstance(further, str) and further:
            self._refresh_token = further
            await self._keep_or_tell(self._session.refresh_token_file, further)
        await self._take(text(answer, "access_token"))
        return True

    async def _take(self, access_token: str) -> None:
        await self._keep_or_tell(self._session.access_token_file, access_token)
        self._client.use(access_token)
        log.info("session_renewed", device_id=self._session.device_id)

    def _is_own(self, user_id: object, device_id: object) -> bool:
        return user_id == self._session.user_id and self._session.device_id in {None, device_id}

    @staticmethod
    async def _keep(path: Path | None, secret: str) -> None:
        if path is not None:
            await asyncio.to_thread(write_back, path, secret)

    async def _keep_or_tell(self, path: Path | None, secret: str) -> None:
        """What cannot be kept serves until the process ends; at the next start there is a way to get another."""
        try:
            await self._keep(path, secret)
        except OSError as error:
            log.warning("session_kept_in_memory_only", reason=error.strerror)


async def account_of(
    url: str, user_id: UserId, access_token: str, *, deadline_s: float = DEADLINE_S
) -> tuple[UserId, str | None]:
    """The account and the device of a token that is not in use."""
    client = MatrixClient(url, user_id, access_token, deadline_s=deadline_s)
    try:
        return await client.whoami()
    finally:
        await client.close()
