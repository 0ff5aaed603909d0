"""A small file in the vault that only the holder of the pickle key can read, or write so that it is believed.

AES-256-GCM; the key is derived from the pickle key, and the device that the vault
belongs to is authenticated with it, so another device's file does not open.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from Crypto.Cipher import AES
from Crypto.Hash import SHA256
from Crypto.Protocol.KDF import HKDF

from agentpod_bot.errors import CryptoStoreRefused

if TYPE_CHECKING:
    from pathlib import Path

    from Crypto.Cipher._mode_gcm import GcmMode

MAGIC: Final = b"agentpod-bot identities 1\n"
KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16
PRIVATE: Final = 0o600


class Sealed:
    """One file. Every method blocks."""

    def __init__(self, path: Path, pickle_key: str, *, user_id: str, device_id: str) -> None:
        self.path = path
        self._key: bytes = HKDF(pickle_key.encode(), KEY_BYTES, b"", SHA256, context=MAGIC)
        self._owner = MAGIC + f"{user_id}\0{device_id}".encode()

    def read(self) -> bytes | None:
        """What was written last; None where there is no file. Raises `CryptoStoreRefused` where it does not open."""
        try:
            raw = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CryptoStoreRefused(f"{self.path} cannot be read: {error.strerror}") from error
        body = raw.removeprefix(MAGIC)
        nonce, tag, sealed = (
            body[:NONCE_BYTES],
            body[NONCE_BYTES : NONCE_BYTES + TAG_BYTES],
            body[NONCE_BYTES + TAG_BYTES :],
        )
        try:
            if body == raw or len(tag) != TAG_BYTES:
                raise ValueError("not such a file")  # noqa: TRY301 - the same sentence for all that is wrong with it
            return self._cipher(nonce).decrypt_and_verify(sealed, tag)
        except ValueError as error:
            raise CryptoStoreRefused(
                f"{self.path} cannot be opened: it is damaged, or the pickle key or the device is another one; "
                "bring it back from a backup, together with the folder that it is in"
            ) from error

    def write(self, content: bytes) -> None:
        """Put `content` in the place of what was written before, all of it or nothing. Raises `OSError`."""
        nonce = os.urandom(NONCE_BYTES)
        sealed, tag = self._cipher(nonce).encrypt_and_digest(content)
        new = self.path.with_name(f"{self.path.name}.new")
        new.unlink(missing_ok=True)
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE)
        try:
            os.fchmod(file, PRIVATE)
            with os.fdopen(file, "wb", closefd=False) as writing:
                writing.write(MAGIC + nonce + tag + sealed)
            os.fsync(file)
        finally:
            os.close(file)
        new.replace(self.path)
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _cipher(self, nonce: bytes) -> GcmMode:
        cipher = AES.new(self._key, AES.MODE_GCM, nonce=nonce, mac_len=TAG_BYTES)
        cipher.update(self._owner)
        return cipher
