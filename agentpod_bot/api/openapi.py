"""The OpenAPI 3.1 document of this endpoint, made from the routes and the models that validate."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from pydantic.json_schema import models_json_schema

import agentpod_bot
from agentpod_bot.api.problem import MEDIA_TYPE, PROBLEMS, Problem
from agentpod_bot.api.routes import ROUTES
from agentpod_bot.api.view import Changed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel

    from agentpod_bot.api.routes import Parameter, Route

SCHEMAS = "#/components/schemas/"
STREAM = (
    "`event` is the new status (queued, pending, decided, …), `id` is where a later stream can go on, `data` is JSON "
    "of the schema Changed. A `reset` says that the given id is not known any more: changes may have been missed, list "
    "the requests; the stream goes on from now. Comments come while nothing happens. Nothing is marked as delivered."
)
_IN_PATH = re.compile(r"\{(?P<name>[a-z_]+)\}")

Mode = Literal["validation", "serialization"]


def document() -> dict[str, Any]:
    """Return the whole document: every route, every status, every model."""
    references, definitions = models_json_schema(_models(), ref_template=SCHEMAS + "{model}")
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, references)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "agentpod-bot",
            "version": agentpod_bot.__version__,
            "description": "Asks a person in a Matrix room before an agent acts. No call here decides a request.",
        },
        "security": [{"bearer": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "schemas": definitions["$defs"],
        },
    }


@cache
def encoded() -> bytes:
    """Return the document as JSON; it never changes while the program runs."""
    return json.dumps(document()).encode()


def _models() -> list[tuple[type[BaseModel], Mode]]:
    """Every model once: a body as it is validated, an answer as it is written."""
    bodies = {route.body: None for route in ROUTES if route.body is not None}
    answers = {a: None for route in ROUTES for a in route.answers.values() if not isinstance(a, str)}
    models: list[tuple[type[BaseModel], Mode]] = []
    models.extend((model, "validation") for model in bodies)
    models.extend((model, "serialization") for model in answers)
    models.append((Changed, "serialization"))
    models.append((Problem, "serialization"))
    return models


def _operation(route: Route, references: Mapping[Any, dict[str, Any]]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.handler.__name__,
        "summary": (route.handler.__doc__ or "").partition("\n")[0],
        "responses": _responses(route, references),
    }
    names = [found["name"] for found in _IN_PATH.finditer(route.path)]
    parameters = [*(_in_path(name) for name in names)]
    parameters += [_parameter(parameter, "query") for parameter in route.query]
    parameters += [_parameter(parameter, "header") for parameter in route.headers]
    if parameters:
        operation["parameters"] = parameters
    if route.body is not None:
        operation["requestBody"] = {
            "required": route.body_required,
            "content": {"application/json": {"schema": references[route.body, "validation"]}},
        }
    if not route.needs_token:
        operation["security"] = []
    return operation


def _responses(route: Route, references: Mapping[Any, dict[str, Any]]) -> dict[str, Any]:
    """Good answers, and for every status of a failure the codes that it may carry."""
    failures: dict[int, list[str]] = {}
    for code in sorted(route.codes):
        failures.setdefault(PROBLEMS[code][0], []).append(code)
    responses: dict[str, Any] = {}
    for status in sorted({*route.answers, *failures}):
        content: dict[str, Any] = {}
        described: list[str] = []
        answer = route.answers.get(status)
        match answer:
            case None:
                pass
            case "text/plain":
                described.append("Every metric, in Prometheus's text format.")
                content[answer] = {"schema": {"type": "string"}}
            case "text/event-stream":
                described.append("Server-Sent Events, without an end; named like the status, with `Changed` as data.")
                schema = {"type": "string", "description": STREAM, "x-event-data": references[Changed, "serialization"]}
                content[answer] = {"schema": schema}
            case str():
                described.append("JSON of a shape that is not described here.")
                content[answer] = {"schema": {"type": "object"}}
            case _:
                described.append((answer.__doc__ or "").partition("\n")[0])
                content["application/json"] = {"schema": references[answer, "serialization"]}
        if status in failures:
            described.append(f"code: {', '.join(failures[status])}.")
            content[MEDIA_TYPE] = {"schema": references[Problem, "serialization"]}
        responses[str(status)] = {"description": " ".join(described), "content": content}
    return responses


def _in_path(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": "Opaque; escape it as one segment of the path.",
        "schema": {"type": "string", "minLength": 1},
    }


def _parameter(parameter: Parameter, place: str) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": place,
        "required": False,
        "description": parameter.description,
        "schema": dict(parameter.schema),
    }
