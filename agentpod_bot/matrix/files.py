"""Files of encrypted rooms: https://spec.matrix.org/v1.14/client-server-api/#sending-encrypted-attachments."""

from __future__ import annotations

from typing import Any

from nio.crypto.attachments import encrypt_attachment


def encrypted_file(content: bytes) -> tuple[bytes, dict[str, Any]]:
    """What to upload, and the `EncryptedFile` that reads it again, but for its `url`."""
    ciphertext, keys = encrypt_attachment(content)
    return ciphertext, keys
