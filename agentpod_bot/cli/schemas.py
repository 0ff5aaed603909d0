"""JSON Schemas of what goes over the wire, generated from the models that validate it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentpod_bot.api.view import View
from agentpod_bot.core.envelope import Answer, Envelope, Receipt
from agentpod_bot.harness.native import NativeRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel

DIALECT = "https://json-schema.org/draft/2020-12/schema"
READ: Mapping[str, type[BaseModel]] = {
    "permission": Envelope,
    "answer": Answer,
    "outcome": Receipt,
    "request": NativeRequest,
}
WRITTEN: Mapping[str, type[BaseModel]] = {"view": View}


def schemas() -> dict[str, dict[str, Any]]:
    """Every schema by its name on the command line; keys are those of the wire."""
    read = {name: model.model_json_schema(by_alias=True) for name, model in READ.items()}
    written = {name: model.model_json_schema(by_alias=True, mode="serialization") for name, model in WRITTEN.items()}
    return {name: {"$schema": DIALECT, **schema} for name, schema in (read | written).items()}
