from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agentpod_bot.core.ids import ClientName
from agentpod_bot.core.model import Caller
from agentpod_bot.errors import ConfigurationError
from tests.unit.api.bench import LAPTOP, OTHER, OTHER_TOKEN, TOKEN

if TYPE_CHECKING:
    from tests.unit.api.bench import Bench

NEEDS_TOKEN = ("/v1/requests", "/v1/requests/x", "/metrics", "/openapi.json", "/unknown", "/healthz/", "/readyz/x")


@pytest.mark.parametrize("path", NEEDS_TOKEN)
async def test_no_path_but_health_and_readiness_is_told_of_without_a_token(daemon: Bench, path: str) -> None:
    reply = await daemon.client.get(path, token=None)
    assert (reply.status, reply.code) == (401, "unauthorized")
    assert reply.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "value",
    ["", "Bearer", "Bearer ", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN} x", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}"],
)
async def test_anything_but_a_configured_bearer_token_is_refused(daemon: Bench, value: str) -> None:
    reply = await daemon.client.get("/v1/requests", token=None, headers={"Authorization": value})
    assert (reply.status, reply.code) == (401, "unauthorized")


async def test_who_sent_a_wrong_token_is_not_told_to_send_one(daemon: Bench) -> None:
    none, wrong = [await daemon.client.get("/v1/requests", token=token) for token in (None, f"{TOKEN}x")]
    assert none.json["detail"] == "send Authorization: Bearer and a configured token"
    assert wrong.json["detail"] == "the token that was sent is none of those that are configured"


async def test_a_token_of_odd_bytes_is_wrong_and_no_crash(daemon: Bench) -> None:
    head = b"GET /v1/requests HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer "
    assert (await daemon.raw(head + b"\xff\xfe\r\n\r\n")).startswith(b"HTTP/1.1 401 ")


async def test_two_tokens_in_one_call_are_none(daemon: Bench) -> None:
    line = f"Authorization: Bearer {TOKEN}\r\n".encode()
    head = b"GET /v1/requests HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    assert (await daemon.raw(head + line + b"\r\n")).startswith(b"HTTP/1.1 200 ")
    assert not (await daemon.raw(head + line + line + b"\r\n")).startswith(b"HTTP/1.1 200 ")


async def test_the_scheme_is_read_in_any_case(daemon: Bench) -> None:
    reply = await daemon.client.get("/v1/requests", token=None, headers={"Authorization": f"bEARER  {TOKEN}"})
    assert reply.status == 200


async def test_a_reload_replaces_the_tokens_for_the_next_call(daemon: Bench) -> None:
    daemon.tokens.replace([("another-token-0123456789", LAPTOP)])
    assert (await daemon.client.get("/v1/requests")).status == 401
    assert (await daemon.client.get("/v1/requests", token="another-token-0123456789")).status == 200


async def test_a_reload_that_cannot_be_keeps_the_old_tokens(daemon: Bench) -> None:
    with pytest.raises(ConfigurationError, match=r"clients\.server\.token: must not be empty"):
        daemon.tokens.replace([("", OTHER)])
    with pytest.raises(ConfigurationError, match=r"clients\.server\.token: is the token of 'laptop' too"):
        daemon.tokens.replace([(TOKEN, LAPTOP), (TOKEN, OTHER)])
    assert (await daemon.client.get("/v1/requests")).status == 200


async def test_a_token_belongs_to_its_client_and_to_no_other(daemon: Bench) -> None:
    assert daemon.tokens.caller(TOKEN) == LAPTOP
    assert daemon.tokens.caller(OTHER_TOKEN) == OTHER
    assert daemon.tokens.caller("") is None
    assert daemon.tokens.caller("\udcff") is None


def test_a_caller_is_what_the_configuration_says() -> None:
    assert Caller(ClientName("laptop"), frozenset({*LAPTOP.routes}), frozenset({"native"})) == LAPTOP


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LocalHost:1",
        "127.0.0.1",
        "127.0.0.1:8470",
        "127.8.9.1",
        "[::1]:8470",
        "[::1]",
        "bot.example.org:80",
    ],
)
async def test_loopback_and_configured_hosts_are_ours(daemon: Bench, host: str) -> None:
    assert (await daemon.client.get("/healthz", token=None, headers={"Host": host})).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "evil.example:8470",
        "10.0.0.1",
        "0.0.0.0",  # noqa: S104 - a name in a header
        "[::]",
        "::1",
        "[::ffff:10.0.0.1]",
        "localhost@evil.example",
        "evil.example@localhost",
        "localhost:80:80",
        "localhost:x",
        "",
        "xbot.example.org",
    ],
)
async def test_any_other_host_is_refused_before_the_token_is_looked_at(daemon: Bench, host: str) -> None:
    for token in (TOKEN, "wrong", None):
        for path in ("/v1/requests", "/healthz"):
            reply = await daemon.client.get(path, token=token, headers={"Host": host})
            assert (reply.status, reply.code) == (403, "host_not_allowed")


@pytest.mark.parametrize(
    ("version", "status"),
    [(b"1.0", b"403"), (b"1.1", b"400")],  # RFC 9112, section 3.2: HTTP/1.1 without a host is malformed
)
async def test_a_call_without_a_host_is_refused(daemon: Bench, version: bytes, status: bytes) -> None:
    answer = await daemon.raw(b"GET /healthz HTTP/" + version + b"\r\nConnection: close\r\n\r\n")
    assert answer.split(b" ")[1] == status
    assert b"application/problem+json" in answer
    assert b"alive" not in answer


async def test_two_hosts_are_none(daemon: Bench) -> None:
    answer = await daemon.raw(
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
    )
    assert answer.split(b" ")[1] in {b"400", b"403"}


async def test_a_target_that_names_another_host_is_refused(daemon: Bench) -> None:
    rest = b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    assert b" 403 " in (await daemon.raw(b"GET http://evil.example/healthz" + rest)).partition(b"\r\n")[0]
    assert b" 200 " in (await daemon.raw(b"GET http://localhost/healthz" + rest)).partition(b"\r\n")[0]


@pytest.mark.parametrize("origin", ["https://evil.example", "http://localhost:8470", "null", ""])
async def test_a_page_in_a_browser_is_refused_whatever_its_origin(daemon: Bench, origin: str) -> None:
    for token in (TOKEN, "wrong"):
        for path in ("/v1/requests", "/healthz"):
            reply = await daemon.client.get(path, token=token, headers={"Origin": origin})
            assert (reply.status, reply.code) == (403, "origin_not_allowed")
    assert "Access-Control-Allow-Origin" not in reply.headers


async def test_an_unknown_path_is_404_as_a_problem(daemon: Bench) -> None:
    for path in ("/", "/v1", "/v1/requests/", "/v1/requests//cancel", "/v1/requests/x/approve", "/v1/event"):
        reply = await daemon.client.get(path)
        assert (reply.status, reply.code) == (404, "not_found")


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("DELETE", "/v1/requests", {"GET", "POST"}),
        ("PUT", "/v1/requests/x", {"GET"}),
        ("HEAD", "/v1/requests/x", {"GET"}),
        ("OPTIONS", "/v1/requests", {"GET", "POST"}),
        ("GET", "/v1/cancel-all", {"POST"}),
        ("POST", "/healthz", {"GET", "HEAD"}),
    ],
)
async def test_a_wrong_method_is_405_and_says_which_would_be_right(
    daemon: Bench, method: str, path: str, allow: set[str]
) -> None:
    reply = await daemon.client.call(method, path)
    assert reply.status == 405
    assert set(reply.headers["Allow"].split(",")) == allow
    assert method == "HEAD" or reply.code == "method_not_allowed"


async def test_health_readiness_and_metrics_say_how_it_is(daemon: Bench) -> None:
    assert (await daemon.client.get("/healthz", token=None)).json == {"status": "alive"}
    assert (await daemon.client.call("HEAD", "/healthz", token=None)).body == b""
    assert (await daemon.client.get("/readyz", token=None)).json == {"status": "ready", "routes": {}}
    daemon.ready.problems = ("sync_stale", "store_unavailable")
    reply = await daemon.client.get("/readyz", token=None)
    problems = ["sync_stale", "store_unavailable"]
    assert (reply.status, reply.json) == (503, {"status": "not_ready", "problems": problems, "routes": {}})
    reply = await daemon.client.get("/metrics")
    assert reply.body == b"agentpod_up 1\n"
    assert reply.headers["Content-Type"] == "text/plain; version=1.0.0; charset=utf-8"
