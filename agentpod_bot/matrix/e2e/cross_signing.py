"""The bot's own identity: three keys, published once, that vouch for its device and for whom it verified.

Clients that follow MSC4153 show, or refuse, what comes from a device for which nobody
vouches. An identity that the account has already is never replaced unasked: whoever
verified it would have to do so again.
https://spec.matrix.org/v1.14/client-server-api/#cross-signing
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import structlog

from agentpod_bot.errors import CrossSigningRefused, HomeserverUnavailable, Refused
from agentpod_bot.matrix.e2e.identities import Seeds
from agentpod_bot.matrix.e2e.published import FIELDS, identity_in, public_key
from agentpod_bot.matrix.e2e.signing import Signer, canonical, has_form, is_signed, new_seed, signable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentpod_bot.matrix.e2e.identities import Identities
    from agentpod_bot.matrix.e2e.ports import Requests, Signing
    from agentpod_bot.matrix.e2e.published import Identity, Usage

QUERY: Final = "/_matrix/client/v3/keys/query"
UPLOAD: Final = "/_matrix/client/v3/keys/device_signing/upload"
SIGNATURES: Final = "/_matrix/client/v3/keys/signatures/upload"
OK: Final = 200
UNAUTHORIZED: Final = 401
PASSWORD: Final = "m.login.password"  # noqa: S105 - the name of a stage
DUMMY: Final = "m.login.dummy"
MOST_STAGES: Final = 5
RESETS: Final = ("m.oauth", "org.matrix.cross_signing_reset")
"""Stages that are passed on a page of the homeserver's."""

log = structlog.get_logger(__name__)


class Keys:
    """The three key pairs of an identity."""

    def __init__(self, seeds: Seeds) -> None:
        self.master = Signer(seeds.master)
        self.self_signing = Signer(seeds.self_signing)
        self.user_signing = Signer(seeds.user_signing)

    def published(self, user_id: str) -> dict[str, dict[str, Any]]:
        """The three public keys as Matrix has them, by usage; the two lesser ones signed by the master key."""
        pairs: dict[Usage, Signer] = {
            "master": self.master,
            "self_signing": self.self_signing,
            "user_signing": self.user_signing,
        }
        made: dict[str, dict[str, Any]] = {
            usage: {"user_id": user_id, "usage": [usage], "keys": {pair.key_id: pair.public}}
            for usage, pair in pairs.items()
        }
        for usage in ("self_signing", "user_signing"):
            made[usage] |= _signatures(user_id, self.master.key_id, self.master.sign(made[usage]))
        return made

    def stand_in(self, answer: Mapping[str, Any], user_id: str) -> bool:
        """Whether these are the keys that the homeserver shows."""
        pairs: dict[Usage, Signer] = {
            "master": self.master,
            "self_signing": self.self_signing,
            "user_signing": self.user_signing,
        }
        return all(public_key(answer, user_id, usage) == pair.public for usage, pair in pairs.items())


class CrossSigning:
    """Makes the bot's identity stand, and signs with it."""

    def __init__(self, device: Signing, requests: Requests, identities: Identities) -> None:
        self._device = device
        self._requests = requests
        self._identities = identities
        self._is_ours = False
        """Whether the identity that the homeserver shows is known to be the bot's own."""
        self.trouble: str | None = None
        """Why the bot's device is not cross-signed, and what to do; None where it is, or was not looked at yet."""

    @property
    def master(self) -> str | None:
        """The public master key of the bot's identity; None where it is not known to stand.

        Never the one of an identity that somebody else made, even if it vouches for the
        bot's device: the homeserver could have made it.
        """
        seeds = self._identities.known.seeds
        return Keys(seeds).master.public if seeds is not None and self._is_ours else None

    async def ensure_or_warn(self, password: str | None = None) -> None:
        """As `ensure`, but where a person is needed go on without, and say so."""
        try:
            await self.ensure(password)
        except CrossSigningRefused as refused:
            self.trouble = str(refused)
            log.warning("not_cross_signed", why=str(refused))

    async def ensure(self, password: str | None = None, *, reset: bool = False) -> None:
        """See that the account has an identity, that it is the bot's, and that it vouches for the bot's device.

        Changes nothing where all that is so. With `reset` an identity that is not the bot's
        is replaced. Raises `CrossSigningRefused` where a person has to do something, a
        `MatrixError` or `StoreUnavailable` where it can be tried again.
        """
        user_id = self._device.own.user_id
        answer = await self._query()
        keys = await self._standing(answer)
        if keys is None:
            self._is_ours = False
            shown = _object(_object(answer, FIELDS["master"]), user_id)
            if shown and not reset:
                if not self._is_vouched_for(answer):
                    raise CrossSigningRefused(_somebody_else_s(user_id))
                self.trouble = None  # its owner signed the device, which is all that others look at
                return
            keys = await self._make(password, anew=bool(shown))
            answer = await self._query()
        await self._vouch(keys, answer)
        self._is_ours, self.trouble = True, None

    async def look(self) -> str | None:
        """What is wrong, and what to do; None where all is well. Nothing is changed. Raises a `MatrixError`."""
        answer = await self._query()
        if self._is_vouched_for(answer):
            return None
        user_id, known = self._device.own.user_id, self._identities.known
        shown = _object(_object(answer, FIELDS["master"]), user_id)
        seeds = [each for each in (known.seeds, known.next_seeds) if each is not None]
        if shown and not any(Keys(each).stand_in(answer, user_id) for each in seeds):
            return _somebody_else_s(user_id)
        return f"no identity of {user_id} vouches for its device yet; the daemon sees to that when it starts"

    def _is_vouched_for(self, answer: Mapping[str, Any]) -> bool:
        own = self._device.own
        identity = identity_in(answer, own.user_id)
        return identity is not None and identity.vouches_for(own.device_id, own.ed25519)

    async def sign_identity(self, identity: Identity) -> None:
        """Vouch, with the bot's user-signing key, for an identity that was verified: the bot's account sees it then.

        Nothing happens where the bot has no identity. Raises a `MatrixError`.
        """
        seeds = self._identities.known.seeds
        if seeds is None or not self._is_ours:
            return
        signer, own = Keys(seeds).user_signing, self._device.own.user_id
        signed = dict(identity.published) | _signatures(own, signer.key_id, signer.sign(identity.published))
        await self._upload_signatures({identity.user_id: {identity.master: signed}})

    async def _query(self) -> dict[str, Any]:
        return await self._requests.ask_for("POST", QUERY, {"device_keys": {self._device.own.user_id: []}})

    async def _standing(self, answer: Mapping[str, Any]) -> Keys | None:
        """Our keys, where they are what the homeserver shows; those that it took unnoticed are adopted."""
        known, user_id = self._identities.known, self._device.own.user_id
        for seeds in (known.seeds, known.next_seeds):
            if seeds is not None and (keys := Keys(seeds)).stand_in(answer, user_id):
                await self._identities.adopt(seeds)
                return keys
        return None

    async def _make(self, password: str | None, *, anew: bool) -> Keys:
        """A new identity, or with not `anew` the one that we have, where the homeserver lost it or never took it."""
        known = self._identities.known
        kept = None if anew else known.seeds or known.next_seeds
        seeds = kept or Seeds(new_seed(), new_seed(), new_seed())
        if kept is None:
            await self._identities.plan(seeds)
        keys = Keys(seeds)
        made = keys.published(self._device.own.user_id)
        await self._publish({f"{usage}_key": key for usage, key in made.items()}, password)
        await self._identities.adopt(seeds)
        log.info("identity_published", user_id=self._device.own.user_id, replaced=anew)
        return keys

    async def _publish(self, keys: Mapping[str, Any], password: str | None) -> None:
        """Upload the keys, and pass what the homeserver asks for in between.

        https://spec.matrix.org/v1.14/client-server-api/#user-interactive-authentication-api
        """
        auth: dict[str, Any] | None = None
        for _ in range(MOST_STAGES):
            status, answer = await self._requests.call(
                "POST", UPLOAD, dict(keys) | ({} if auth is None else {"auth": auth})
            )
            if status == OK:
                return
            if status != UNAUTHORIZED:
                raise CrossSigningRefused(f"the homeserver takes no identity: {_said(answer)}")
            if auth is not None and auth["type"] == PASSWORD and PASSWORD not in _list(answer, "completed"):
                raise CrossSigningRefused(f"the homeserver does not take the bot's password: {_said(answer)}")
            auth = self._next_stage(answer, password)
        raise CrossSigningRefused("the homeserver asks for ever more before it takes an identity")

    def _next_stage(self, answer: Mapping[str, Any], password: str | None) -> dict[str, Any]:
        """What to pass next, on a way that needs nobody. Raises `CrossSigningRefused` where there is no such way."""
        able = (DUMMY,) if password is None else (DUMMY, PASSWORD)
        completed = _list(answer, "completed")
        session = answer.get("session")
        for flow in _list(answer, "flows"):
            stages = _list(flow, "stages") if isinstance(flow, dict) else []
            left = [stage for stage in stages if stage not in completed]
            if left and all(stage in able for stage in left):
                auth: dict[str, Any] = {"type": left[0]} | ({"session": session} if isinstance(session, str) else {})
                if left[0] == PASSWORD:
                    user = {"type": "m.id.user", "user": self._device.own.user_id}
                    auth |= {"identifier": user, "password": password}
                return auth
        raise CrossSigningRefused(_what_to_do(answer, has_password=password is not None))

    async def _vouch(self, keys: Keys, answer: Mapping[str, Any]) -> None:
        """Sign the device with the self-signing key and the master key with the device, where either is missing."""
        own = self._device.own
        user_id, device_key_id = own.user_id, f"ed25519:{own.device_id}"
        published = _object(_object(_object(answer, "device_keys"), user_id), own.device_id)
        public = _object(published, "keys")
        found = (public.get(device_key_id), public.get(f"curve25519:{own.device_id}"))
        if found != (own.ed25519, own.curve25519):
            raise HomeserverUnavailable("the homeserver does not show the keys of the bot's device yet")
        shown = _object(_object(answer, FIELDS["master"]), user_id)
        master = signable(shown)
        if not has_form([signable(published), master]):
            raise HomeserverUnavailable("the homeserver shows keys of the bot that nobody can sign")
        signing: dict[str, Any] = {}
        if not self._is_vouched_for(answer):
            signature = keys.self_signing.sign(published)
            signing[own.device_id] = signable(published) | _signatures(user_id, keys.self_signing.key_id, signature)
        if not is_signed(shown, user_id, device_key_id, own.ed25519):
            signature = await self._device.sign(canonical(master).decode())
            signing[keys.master.public] = master | _signatures(user_id, device_key_id, signature)
        if signing:
            await self._upload_signatures({user_id: signing})
            log.info("device_cross_signed", user_id=user_id, device_id=own.device_id)

    async def _upload_signatures(self, signed: Mapping[str, Any]) -> None:
        answer = await self._requests.ask_for("POST", SIGNATURES, signed)
        failures = answer.get("failures")
        if failures:
            raise Refused("M_INVALID_SIGNATURE", "the homeserver did not take a signature of the bot's identity")


def _somebody_else_s(user_id: str) -> str:
    return (
        f"{user_id} has a cross-signing identity that this bot did not make, so its device is not cross-signed: "
        "sign the device with the client that made the identity, or replace the identity with "
        "`agentpod-bot login --reset-identity`, after which whoever verified the account has to do so again"
    )


def _what_to_do(answer: Mapping[str, Any], *, has_password: bool) -> str:
    stages = {
        stage
        for flow in _list(answer, "flows")
        for stage in (_list(flow, "stages") if isinstance(flow, dict) else [])
        if isinstance(stage, str)
    }
    for name in RESETS:
        url = _object(_object(answer, "params"), name).get("url")
        if name in stages and isinstance(url, str) and url.startswith("https://") and url.isprintable():
            return f"the homeserver asks a person to allow the bot's identity at {url} ; do so, and try again"
    if PASSWORD in stages and not has_password:
        return (
            "the homeserver asks for the bot's password before it takes its identity: "
            "give homeserver.password_file, or log in anew with agentpod-bot login"
        )
    return f"the homeserver asks for what the bot cannot do alone: {', '.join(sorted(stages))[:200] or 'nothing known'}"


def _signatures(user_id: str, key_id: str, signature: str) -> dict[str, Any]:
    return {"signatures": {user_id: {key_id: signature}}}


def _said(answer: Mapping[str, Any]) -> str:
    errcode, error = answer.get("errcode"), answer.get("error")
    return f"{errcode}: {error}"[:200] if isinstance(errcode, str) else "it does not say why"


def _object(value: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = value.get(key)
    return found if isinstance(found, dict) else {}


def _list(value: Mapping[str, Any], key: str) -> list[Any]:
    found = value.get(key)
    return found if isinstance(found, list) else []
