"""One verification, from its request to its end: pure. The other side asks and starts; this side answers.

Keys count as verified in one case only: the person at this machine said that the emoji
match, *and* the other side's vouching for those keys was right. `Trust` is returned
then and never else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, assert_never

from agentpod_bot.matrix.e2e.sas import METHOD, Agreed, Macs, Short, Side, agree, commitment, establish, short

if TYPE_CHECKING:
    from collections.abc import Mapping

    import vodozemac

PREFIX: Final = "m.key.verification."
REQUEST: Final = PREFIX + "request"
READY: Final = PREFIX + "ready"
START: Final = PREFIX + "start"
ACCEPT: Final = PREFIX + "accept"
KEY: Final = PREFIX + "key"
MAC: Final = PREFIX + "mac"
DONE: Final = PREFIX + "done"
CANCEL: Final = PREFIX + "cancel"


class Code(StrEnum):
    """Why a verification is cancelled: https://spec.matrix.org/v1.14/client-server-api/#mkeyverificationcancel."""

    USER = "m.user"
    TIMEOUT = "m.timeout"
    UNKNOWN_TRANSACTION = "m.unknown_transaction"
    UNKNOWN_METHOD = "m.unknown_method"
    UNEXPECTED_MESSAGE = "m.unexpected_message"
    KEY_MISMATCH = "m.key_mismatch"
    INVALID_MESSAGE = "m.invalid_message"
    ACCEPTED = "m.accepted"
    MISMATCHED_SAS = "m.mismatched_sas"


REASONS: Final = {
    Code.USER: "The bot does not take part in this verification.",
    Code.TIMEOUT: "The verification took too long.",
    Code.UNKNOWN_TRANSACTION: "The bot knows nothing of this verification.",
    Code.UNKNOWN_METHOD: "The bot verifies by emoji or numbers only.",
    Code.UNEXPECTED_MESSAGE: "The message does not belong there.",
    Code.KEY_MISMATCH: "The keys are not the expected ones.",
    Code.INVALID_MESSAGE: "The message cannot be read.",
    Code.ACCEPTED: "Another device answered.",
    Code.MISMATCHED_SAS: "The emoji do not match.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Who verifies whom, fixed at the beginning: keys that change meanwhile are not the ones that were compared.

    The masters are the public keys of the identities; None where there is none.
    """

    transaction_id: str
    own: Side
    own_ed25519: str
    own_master: str | None
    other: Side
    ed25519: str
    master: str | None

    @property
    def own_keys(self) -> dict[str, str]:
        """What we vouch for."""
        return _by_id(self.own.device_id, self.own_ed25519, self.own_master)

    @property
    def keys(self) -> dict[str, str]:
        """What the other side may vouch for."""
        return _by_id(self.other.device_id, self.ed25519, self.master)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """We are ready; the other side has to start."""

    terms: Terms
    secret: vodozemac.Sas


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """We bound ourselves to our key; theirs is awaited."""

    terms: Terms
    secret: vodozemac.Sas
    agreed: Agreed


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """Both people can compare. `vouched` are the ids of the other side's keys for which it vouched; None: not yet."""

    terms: Terms
    secret: vodozemac.EstablishedSas
    agreed: Agreed
    short: Short
    confirmed: bool = False
    vouched: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """Both sides vouched, and the person at this machine agreed."""

    terms: Terms
    trusted: Trust


@dataclass(frozen=True, slots=True)
class Cancelled:
    """It came to nothing. `code` is the other side's word where it cancelled, so it may be anything."""

    code: str
    by_us: bool


State = Waiting | Accepted | Shown | Finished | Cancelled


@dataclass(frozen=True, slots=True)
class Heard:
    """A message of the other side that belongs to this verification."""

    kind: str
    content: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The person at this machine says that the emoji match."""


@dataclass(frozen=True, slots=True)
class Given:
    """This side gives it up."""

    code: Code


Event = Heard | Confirmed | Given


@dataclass(frozen=True, slots=True)
class Say:
    """Tell the other side; which verification it is about is still to be added to the content."""

    kind: str
    content: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Trust:
    """Exactly these keys are verified from now on; None for one that was not vouched for."""

    ed25519: str | None
    master: str | None


Effect = Say | Trust


def ready(own: Side) -> Say:
    """The answer to a request."""
    return Say(READY, {"from_device": own.device_id, "methods": [METHOD]})


def cancelling(code: Code) -> Say:
    """The message that ends a verification."""
    return Say(CANCEL, {"code": code.value, "reason": REASONS[code]})


def step(state: State, event: Event) -> tuple[State, tuple[Effect, ...]]:
    """The only way a verification changes. One that has ended never changes again."""
    match state, event:
        case ((Finished() | Cancelled()), _):
            return state, ()
        case _, Heard(kind="m.key.verification.cancel", content=content):
            code = content.get("code")
            return Cancelled(code if isinstance(code, str) else "", by_us=False), ()
        case _, Given(code=code):
            return _cancel(code)
        case Waiting() as waiting, Heard(kind="m.key.verification.start", content=content):
            return _started(waiting, content)
        case Accepted() as accepted, Heard(kind="m.key.verification.key", content=content):
            return _keyed(accepted, content)
        case Shown(vouched=None) as shown, Heard(kind="m.key.verification.mac", content=content):
            return _vouched(shown, content)
        case Shown(confirmed=False) as shown, Confirmed():
            said = Say(MAC, _macs(shown, by_us=True).content(shown.terms.own_keys))
            then, effects = _settled(replace(shown, confirmed=True))
            return then, (said, *effects)
        case _, Confirmed():
            return state, ()  # nothing was shown yet, or it was confirmed before
        case _, Heard():
            return _cancel(Code.UNEXPECTED_MESSAGE)
        case _:
            assert_never(event)


def _started(state: Waiting, content: Mapping[str, Any]) -> tuple[State, tuple[Effect, ...]]:
    if content.get("from_device") != state.terms.other.device_id:
        return _cancel(Code.INVALID_MESSAGE)  # its keys are not those that were fixed
    agreed = agree(content)
    if agreed is None:
        return _cancel(Code.UNKNOWN_METHOD)
    try:
        bound = commitment(state.secret.public_key.to_base64(), content)
    except (ValueError, RecursionError):
        return _cancel(Code.INVALID_MESSAGE)
    accept = {
        "method": METHOD,
        "key_agreement_protocol": "curve25519-hkdf-sha256",
        "hash": "sha256",
        "message_authentication_code": agreed.mac.value,
        "short_authentication_string": list(agreed.strings),
        "commitment": bound,
    }
    return Accepted(terms=state.terms, secret=state.secret, agreed=agreed), (Say(ACCEPT, accept),)


def _keyed(state: Accepted, content: Mapping[str, Any]) -> tuple[State, tuple[Effect, ...]]:
    terms, key = state.terms, content.get("key")
    own_key = state.secret.public_key.to_base64()
    if not isinstance(key, str):
        return _cancel(Code.INVALID_MESSAGE)
    try:
        secret, theirs = establish(state.secret, key)
    except ValueError:
        return _cancel(Code.INVALID_MESSAGE)
    shown = Shown(
        terms=terms,
        secret=secret,
        agreed=state.agreed,
        short=short(
            secret, starter=(terms.other, theirs), accepter=(terms.own, own_key), transaction_id=terms.transaction_id
        ),
    )
    return shown, (Say(KEY, {"key": own_key}),)


def _vouched(state: Shown, content: Mapping[str, Any]) -> tuple[State, tuple[Effect, ...]]:
    try:
        covered = _macs(state, by_us=False).covered(content, state.terms.keys)
    except ValueError:
        return _cancel(Code.KEY_MISMATCH)
    if not covered:
        return _cancel(Code.KEY_MISMATCH)  # it vouched for nothing that we know: there is nothing to verify
    return _settled(replace(state, vouched=covered))


def _settled(state: Shown) -> tuple[State, tuple[Effect, ...]]:
    if not state.confirmed or state.vouched is None:
        return state, ()
    keys = state.terms.keys
    vouched = {key_id.partition(":")[2]: keys[key_id] for key_id in state.vouched}
    trust = Trust(ed25519=vouched.get(state.terms.other.device_id), master=vouched.get(state.terms.master or ""))
    return Finished(state.terms, trust), (trust, Say(DONE, {}))


def _macs(state: Shown, *, by_us: bool) -> Macs:
    terms = state.terms
    by, to = (terms.own, terms.other) if by_us else (terms.other, terms.own)
    return Macs(state.secret, state.agreed.mac, by=by, to=to, transaction_id=terms.transaction_id)


def _cancel(code: Code) -> tuple[State, tuple[Effect, ...]]:
    return Cancelled(code.value, by_us=True), (cancelling(code),)


def _by_id(device_id: str, ed25519: str, master: str | None) -> dict[str, str]:
    keys = {f"ed25519:{device_id}": ed25519}
    return keys if master is None else keys | {f"ed25519:{master}": master}
