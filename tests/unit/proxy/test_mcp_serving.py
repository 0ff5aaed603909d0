from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from agentpod_bot.proxy.mcp_server import server
from agentpod_bot.proxy.mcp_serving import PATH, application, hosts
from tests.unit.proxy.test_mcp_server import FakeDoors

if TYPE_CHECKING:
    from starlette.types import Message

TOKEN = "correct-horse-battery-staple"
ALLOWED = hosts("127.0.0.1", 8471, ())
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}


async def status(*headers: tuple[str, str], body: object = HELLO) -> int:
    """What one POST is answered with."""
    sent: list[Message] = []
    bodies = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]

    async def receive() -> Message:
        return bodies.pop(0) if bodies else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    usual = (("content-type", "application/json"), ("accept", "application/json, text/event-stream"))
    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": PATH,
        "raw_path": PATH.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in (*usual, *headers)],
        "client": ("127.0.0.1", 5),
        "server": ("127.0.0.1", 8471),
    }
    served = server(FakeDoors())
    app = application(served, TOKEN, ALLOWED)
    async with served.session_manager.run():
        await app(scope, receive, send)
    return next(int(message["status"]) for message in sent if message["type"] == "http.response.start")


HOST = ("host", "127.0.0.1:8471")
BEARER = ("authorization", f"Bearer {TOKEN}")


async def test_a_client_with_the_token_is_served() -> None:
    assert await status(HOST, BEARER) == 200
    assert await status(HOST, ("authorization", f"bearer {TOKEN}")) == 200


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("authorization", "Bearer ")],
        [("authorization", "Bearer wrong")],
        [("authorization", f"Bearer {TOKEN}x")],
        [("authorization", f"Basic {TOKEN}")],
        [("authorization", TOKEN)],
        [("authorization", "Bearer wrong"), BEARER],
        [("x-authorization", f"Bearer {TOKEN}")],
    ],
)
async def test_nobody_else_is(headers: list[tuple[str, str]]) -> None:
    assert await status(HOST, *headers) == 401


@pytest.mark.parametrize(
    "host", ["evil.example.org:8471", "127.0.0.1:9999", "localhost", "127.0.0.1:8471.evil.example"]
)
async def test_a_name_that_was_bound_to_this_address_reaches_nothing(host: str) -> None:
    assert await status(("host", host), BEARER) == 421


@pytest.mark.parametrize(
    "origin", ["https://evil.example.org", "http://127.0.0.1:8471", "http://localhost:8471", "null"]
)
async def test_a_web_page_reaches_nothing(origin: str) -> None:
    assert await status(HOST, BEARER, ("origin", origin)) == 403


async def test_a_message_that_is_larger_than_any_question_is_not_read() -> None:
    assert await status(HOST, BEARER, body={"x": "y" * 3_000_000}) == 413


def test_the_names_of_an_address_are_its_own_those_of_this_machine_and_those_that_were_given() -> None:
    assert hosts("::1", 1, ["gate.example.org"]) == sorted(
        {"[::1]:1", "127.0.0.1:1", "localhost:1", "gate.example.org:1", "gate.example.org"}
    )
