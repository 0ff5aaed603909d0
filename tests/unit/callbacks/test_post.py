"""Single tries against a receiver on loopback, and against addresses that are never reached."""

from __future__ import annotations

import socket
import ssl
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from agentpod_bot.callbacks.address import Allowed
from agentpod_bot.callbacks.post import MOST_HEADERS, AddressRefused, Checked, Poster
from agentpod_bot.callbacks.reply import Failed, Gone, Taken, Why
from agentpod_bot.callbacks.target import Target
from agentpod_bot.core.ids import WebhookId
from agentpod_bot.system import SystemClock
from tests.unit.callbacks.receiver import OTHER_SECRET, SECRET, answer, receiving

if TYPE_CHECKING:
    from pathlib import Path

    from agentpod_bot.callbacks.reply import Reply
    from tests.unit.callbacks.receiver import Receiver

ID = WebhookId("msg_2f")
BODY = '{"request_id":"acps_3f0c:12","label":"Weiter é 🙂"}'
LONG_ENOUGH_S = 20.0
SHORT_S = 0.2
"""For answers that never come; nothing that a test hopes for has to happen within it."""


class Names(AbstractResolver):
    """Answers each look-up with the next of these lists of addresses."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked = 0

    def __call__(self) -> AbstractResolver:
        return self

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        del family
        self.asked += 1
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in self.answers.pop(0)
        ]

    async def close(self) -> None:
        pass


def own(
    receiver: Receiver, path: str = "/hooks", *, host: str = "127.0.0.1", secrets: tuple[str, ...] = (SECRET,)
) -> Target:
    return Target(receiver.url(path, host=host), secrets, allow_private=True)


async def post(
    target: Target, *, names: Names | None = None, timeout_s: float = LONG_ENOUGH_S, tls: ssl.SSLContext | None = None
) -> Reply:
    poster = Poster(SystemClock(), timeout_s=timeout_s, tls=tls, names=names or Names([]))
    return await poster(target, ID, BODY)


async def test_what_is_posted_is_signed_json_at_the_url_as_it_is_written() -> None:
    async with receiving() as receiver:
        assert await post(own(receiver, "/h%2Fooks?key=%7E+x")) == Taken()
    (taken,) = receiver.taken
    assert (taken.target, taken.body) == ("/h%2Fooks?key=%7E+x", BODY)
    assert taken.headers["content-type"] == "application/json"
    assert taken.headers["webhook-id"] == ID


async def test_while_secrets_are_changed_a_receiver_with_either_takes_it() -> None:
    async with receiving() as receiver:
        for receiver.secret in (SECRET, OTHER_SECRET):
            assert await post(own(receiver, secrets=(SECRET, OTHER_SECRET))) == Taken()
    assert len(receiver.taken) == 2


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (answer(204), Taken()),
        (answer(410), Gone()),
        (answer(500), Failed(Why.SERVER_ERROR, 500)),
        (answer(404), Failed(Why.REFUSED, 404)),
        (answer(429, "Retry-After: 7"), Failed(Why.RATE_LIMITED, 429, 7_000)),
        (answer(503, "Retry-After: Mon, 01 Jan 99999999999999999999 00:00:00 GMT"), Failed(Why.SERVER_ERROR, 503)),
        (answer(503, "Retry-After: 9"), Failed(Why.SERVER_ERROR, 503, 9_000)),
        (b"", Failed(Why.UNREACHABLE)),
        (b"HTTP/1.1 200", Failed(Why.UNREACHABLE)),
        (b"SSH-2.0-OpenSSH_9.9\r\n\r\n", Failed(Why.UNREACHABLE)),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n", Failed(Why.UNREACHABLE)),
        (b"HTTP/1.1 200 OK\r\n" + b"X: x\r\n" * (MOST_HEADERS + 1) + b"\r\n", Failed(Why.UNREACHABLE)),
    ],
)
async def test_each_answer_is_read_for_what_it_is(said: bytes, expected: Reply) -> None:
    async with receiving(answers=[said]) as receiver:
        assert await post(own(receiver)) == expected


async def test_a_receiver_that_never_answers_is_given_up_in_time() -> None:
    async with receiving(answers=[None]) as receiver:
        assert await post(own(receiver), timeout_s=SHORT_S) == Failed(Why.TIMED_OUT)


async def test_a_body_without_an_end_is_not_read() -> None:
    async with receiving(answers=[b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"]) as receiver:
        receiver.endless = b"400\r\n" + b"x" * 1024 + b"\r\n"
        assert await post(own(receiver)) == Taken()


async def test_a_head_without_an_end_is_given_up() -> None:
    async with receiving(answers=[b"HTTP/1.1 200 OK\r\n"]) as receiver:
        receiver.endless = b"X: x\r\n"
        assert await post(own(receiver)) == Failed(Why.UNREACHABLE)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_no_redirect_is_followed(status: int) -> None:
    async with receiving() as elsewhere, receiving() as receiver:
        receiver.usual = answer(status, f"Location: {elsewhere.url()}")
        assert await post(own(receiver)) == Failed(Why.REDIRECTED, status)
    assert (receiver.connections, elsewhere.connections) == (1, 0)


async def test_no_cookie_and_no_connection_is_kept_from_one_try_to_the_next() -> None:
    poster = Poster(SystemClock())
    async with receiving() as receiver:
        receiver.usual = answer(200, "Set-Cookie: a=b", "Connection: keep-alive")
        for _ in range(2):
            assert await poster(own(receiver), ID, BODY) == Taken()
    assert receiver.connections == 2
    assert all("cookie" not in taken.headers for taken in receiver.taken)
    assert all(taken.headers["connection"] == "close" for taken in receiver.taken)


async def test_the_environment_names_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async with receiving() as proxy, receiving() as receiver:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url(""))
        monkeypatch.delenv("no_proxy", raising=False)
        assert await post(own(receiver)) == Taken()
    assert (receiver.connections, proxy.connections) == (1, 0)


async def test_nobody_listens_there() -> None:
    async with receiving() as receiver:
        pass
    assert await post(own(receiver)) == Failed(Why.UNREACHABLE)


@pytest.mark.parametrize("host", ["127.0.0.1", "hooks.test"])
async def test_our_own_machine_is_no_target_unless_that_is_allowed(host: str) -> None:
    async with receiving() as receiver:
        target = Target(receiver.url(host=host, scheme="https"), (SECRET,))
        assert await post(target, names=Names(["127.0.0.1"])) == Failed(Why.ADDRESS_REFUSED)
    assert receiver.connections == 0


@pytest.mark.parametrize(
    "host",
    ["169.254.169.254", "[::ffff:169.254.169.254]", "[fd00:ec2::254]", "[fe80::1]", "0.0.0.0", "[::]", "224.0.0.1"],  # noqa: S104 - to be refused
)
@pytest.mark.parametrize("allow_private", [True, False])
async def test_an_address_in_the_url_itself_is_checked_too(host: str, *, allow_private: bool) -> None:
    target = Target(f"https://{host}/latest", (SECRET,), allow_private=allow_private)
    assert await post(target) == Failed(Why.ADDRESS_REFUSED)


@pytest.mark.parametrize("host", ["93.184.216.34", "hooks.test"])
async def test_clear_text_never_leaves_our_own_networks(host: str) -> None:
    target = Target(f"http://{host}/hooks", (SECRET,), allow_private=True)
    assert await post(target, names=Names(["93.184.216.34"])) == Failed(Why.ADDRESS_REFUSED)


async def test_the_address_that_was_checked_is_the_one_that_is_connected_to() -> None:
    names = Names(["127.0.0.1"], ["169.254.169.254"], ["127.0.0.1"])
    async with receiving() as receiver:
        target = own(receiver, host="hooks.test")
        assert await post(target, names=names) == Taken()
        assert names.asked == 1
        assert await post(target, names=names) == Failed(Why.ADDRESS_REFUSED)
        assert await post(target, names=names) == Taken()
    assert names.asked == 3
    assert receiver.connections == 2
    assert receiver.taken[0].headers["host"] == f"hooks.test:{receiver.port}"


async def test_of_several_addresses_only_those_that_are_allowed_are_tried() -> None:
    names = Names(["169.254.169.254", "::ffff:169.254.169.254", "93.184.216.34", "127.0.0.1"])
    async with receiving() as receiver:
        assert await post(own(receiver, host="hooks.test"), names=names) == Taken()


async def test_a_look_up_passes_on_only_addresses_that_are_allowed() -> None:
    names = Names(["127.0.0.1", "93.184.216.34", "10.0.0.1"], ["127.0.0.1", "169.254.169.254"], [])
    checked = Checked(names, Allowed(own_networks=False, in_clear=False))
    assert [found["host"] for found in await checked.resolve("hooks.test", 443)] == ["93.184.216.34"]
    for _ in range(2):
        with pytest.raises(AddressRefused):
            await checked.resolve("hooks.test", 443)


@pytest.mark.parametrize("host", ["2130706433", "0x7f.1", "127.1", "localhost."])
async def test_other_ways_to_write_our_own_machine_lead_nowhere(host: str) -> None:
    async with receiving() as receiver:
        poster = Poster(SystemClock(), timeout_s=LONG_ENOUGH_S)
        outcome = await poster(Target(receiver.url(host=host, scheme="https"), (SECRET,)), ID, BODY)
        assert outcome in (Failed(Why.ADDRESS_REFUSED), Failed(Why.UNREACHABLE))
    assert receiver.connections == 0


def certificate(folder: Path, host: str) -> Path:
    """A certificate for a host that signs itself, and its key, in one file."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415 - only where it is installed
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415 - as above

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / f"{host}.pem"
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return path


@pytest.mark.parametrize(
    ("host", "trusted", "expected"),
    [
        ("hooks.test", True, Taken()),
        ("hooks.test", False, Failed(Why.TLS)),
        ("other.test", True, Failed(Why.TLS)),
    ],
)
async def test_the_certificate_is_checked_with_the_name_in_it(
    tmp_path: Path, host: str, *, trusted: bool, expected: Reply
) -> None:
    path = certificate(tmp_path, "hooks.test")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(path)
    trusting = ssl.create_default_context(cafile=str(path)) if trusted else None
    async with receiving(server) as receiver:
        target = Target(receiver.url(host=host, scheme="https"), (SECRET,), allow_private=True)
        assert await post(target, names=Names(["127.0.0.1"]), tls=trusting) == expected
    assert len(receiver.taken) == (expected == Taken())
