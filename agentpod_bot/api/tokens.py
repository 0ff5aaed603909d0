"""Bearer tokens: who calls."""

from __future__ import annotations

import hmac
from hashlib import sha256
from typing import TYPE_CHECKING

from agentpod_bot.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentpod_bot.core.model import Caller


class Tokens:
    """The configured tokens. Only their digests are kept; a reload replaces all of them at once."""

    def __init__(self, known: Iterable[tuple[str, Caller]]) -> None:
        self._known = _digested(known)

    def replace(self, known: Iterable[tuple[str, Caller]]) -> None:
        """Take these tokens instead, from the next call on; calls that wait go on.

        Raises `ConfigurationError`, and keeps the old ones, where a token is empty or two
        clients have the same one.
        """
        self._known = _digested(known)

    def caller(self, presented: str) -> Caller | None:
        """Return who a presented token belongs to.

        It is compared with every token there is, in a time that says nothing of where,
        or whether, it agrees.
        """
        digest = _digest(presented)
        found: Caller | None = None
        for known, caller in self._known:
            if hmac.compare_digest(known, digest):
                found = caller
        return found


def _digest(token: str) -> bytes:
    # Header bytes that are no UTF-8 come as surrogates; they must be wrong, and not an error.
    return sha256(token.encode("utf-8", "surrogateescape")).digest()


def _digested(known: Iterable[tuple[str, Caller]]) -> tuple[tuple[bytes, Caller], ...]:
    digested: dict[bytes, Caller] = {}
    for token, caller in known:
        if not token:
            raise ConfigurationError(f"clients.{caller.client}.token: must not be empty")
        digest = _digest(token)
        if digest in digested:
            other = digested[digest].client
            raise ConfigurationError(f"clients.{caller.client}.token: is the token of {other!r} too")
        digested[digest] = caller
    return tuple(digested.items())
