"""Identifiers, each a type of its own. All are opaque: compared exactly, never parsed."""

from __future__ import annotations

from typing import NewType

ClientName = NewType("ClientName", str)
"""Name of a token in the configuration; a caller cannot claim another."""
RouteName = NewType("RouteName", str)
RequestId = NewType("RequestId", str)
SessionId = NewType("SessionId", str)
OptionId = NewType("OptionId", str)
Code = NewType("Code", str)
"""Short name of one open question in one room, upper case, like `K7`."""
RoomId = NewType("RoomId", str)
EventId = NewType("EventId", str)
UserId = NewType("UserId", str)
TxnId = NewType("TxnId", str)
WebhookId = NewType("WebhookId", str)
"""Id of one callback, the same over all of its tries (`webhook-id` of Standard Webhooks)."""
Row = NewType("Row", int)
"""The store's own number of one question (one revision of one request)."""
