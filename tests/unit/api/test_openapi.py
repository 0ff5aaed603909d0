from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from agentpod_bot import errors
from agentpod_bot.api import openapi
from agentpod_bot.api.problem import PROBLEMS
from agentpod_bot.api.routes import ROUTES
from tests.unit.api.bench import DOCUMENT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.unit.api.bench import Bench

HTTP_ONLY = {"method_not_allowed", "expectation_failed"}
"""Codes that are found by the HTTP library, and have no class."""
INSIDE = {"matrix_error", "rate_limited", "homeserver_unavailable", "token_refused", "refused"}
"""Codes of what the homeserver says; the broker turns them into its own."""


def references(part: Any) -> Iterator[str]:
    match part:
        case dict():
            if isinstance(part.get("$ref"), str):
                yield part["$ref"]
            for inner in part.values():
                yield from references(inner)
        case list():
            for inner in part:
                yield from references(inner)
        case _:
            pass


def test_every_reference_leads_to_a_schema_and_every_schema_is_referred_to() -> None:
    known = {openapi.SCHEMAS + name for name in DOCUMENT["components"]["schemas"]}
    assert set(references(DOCUMENT)) == known


def test_every_operation_has_its_own_name_a_summary_and_answers() -> None:
    operations = [operation for path in DOCUMENT["paths"].values() for operation in path.values()]
    assert len({operation["operationId"] for operation in operations}) == len(operations) == len(ROUTES)
    for operation in operations:
        assert operation["summary"]
        assert all(response["description"] for response in operation["responses"].values())


def test_every_name_in_a_path_is_a_parameter() -> None:
    for path, operations in DOCUMENT["paths"].items():
        for operation in operations.values():
            named = [p["name"] for p in operation.get("parameters", ()) if p["in"] == "path"]
            assert [f"{{{name}}}" for name in named] == [part for part in path.split("/") if part.startswith("{")]


def test_no_route_decides_a_request() -> None:
    assert set(DOCUMENT["paths"]) == {
        "/v1/requests",
        "/v1/requests/{request_id}",
        "/v1/requests/{request_id}/cancel",
        "/v1/requests/{request_id}/answered-elsewhere",
        "/v1/requests/{request_id}/progress",
        "/v1/sessions/{session_id}/cancel",
        "/v1/cancel-all",
        "/v1/events",
        "/v1/harness/{harness}",
        "/healthz",
        "/readyz",
        "/metrics",
        "/openapi.json",
    }


def test_a_request_requires_its_session_title_and_options_and_can_name_no_room() -> None:
    schema = DOCUMENT["components"]["schemas"]["NativeRequest"]
    assert set(schema["required"]) == {"session_id", "title", "options"}
    assert not {"room", "room_id", "approvers", "callback"} & set(schema["properties"])


def test_only_health_and_readiness_need_no_token() -> None:
    open_to_all = {
        path for path, operations in DOCUMENT["paths"].items() if any("security" in o for o in operations.values())
    }
    assert open_to_all == {"/healthz", "/readyz"}


async def test_the_document_is_served_as_it_is_made(daemon: Bench) -> None:
    assert (await daemon.client.get("/openapi.json")).json == DOCUMENT
    assert DOCUMENT["openapi"] == "3.1.0"


def test_every_failure_that_can_reach_a_caller_has_a_status() -> None:
    classes = [
        each
        for _, each in inspect.getmembers(errors, inspect.isclass)
        if issubclass(each, errors.AgentpodError) and not issubclass(each, errors.CannotStart)
    ]
    assert {each.code for each in classes} - INSIDE == set(PROBLEMS) - HTTP_ONLY


def test_a_code_never_answers_with_success() -> None:
    assert all(400 <= status < 600 and title for status, title in PROBLEMS.values())
