from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agentpod_bot.callbacks.target import Target, targets_of
from agentpod_bot.config.reload import reloadable
from agentpod_bot.config.report import report
from agentpod_bot.config.source import CredentialFile, InEnvironment
from agentpod_bot.core.ids import ClientName
from tests.unit.config.conftest import LAPTOP_TOKEN

if TYPE_CHECKING:
    from tests.unit.config.conftest import Site

URL = "https://hooks.test/agentpod?key=in-the-query"
SECRET = "whsec_bWFkZS11cC1tYWRlLXVwLW1hZGUtdXAtbWFkZS11cCE="
OLD = "b2xkLW9sZC1vbGQtb2xkLW9sZC1vbGQtb2xkLW9sZC1vbGQh"
KEYS = "clients.laptop.callback"


@pytest.fixture
def called(site: Site) -> Site:
    """A client with a callback."""
    site.set(f"{KEYS}_url", URL)
    return site.set(f"{KEYS}_secret_file", str(site.secret("signing", SECRET)))


def test_a_client_has_no_callback_unless_the_configuration_says_so(site: Site) -> None:
    assert targets_of(site.load().settings) == {}


def test_a_callback_has_a_url_and_a_secret(called: Site) -> None:
    assert targets_of(called.load().settings) == {ClientName("laptop"): Target(URL, (SECRET,))}


def test_two_secrets_are_valid_while_they_are_changed_the_new_one_first(called: Site) -> None:
    called.set(f"{KEYS}_old_secret_file", str(called.secret("old", OLD)))
    assert targets_of(called.load().settings)[ClientName("laptop")].secrets == (SECRET, OLD)


def test_secrets_come_from_the_environment_and_from_credentials_too(site: Site) -> None:
    site.set(f"{KEYS}_url", URL).env("AGENTPOD_BOT_CLIENTS__LAPTOP__CALLBACK_SECRET", SECRET)
    path = site.secret(f"{KEYS}_old_secret", OLD, 0o440, site.credentials())
    loaded = site.load()
    assert targets_of(loaded.settings)[ClientName("laptop")].secrets == (SECRET, OLD)
    assert loaded.sources[f"{KEYS}_secret"] == InEnvironment("AGENTPOD_BOT_CLIENTS__LAPTOP__CALLBACK_SECRET")
    assert loaded.sources[f"{KEYS}_old_secret"] == CredentialFile(path)


def test_a_secret_never_stands_in_the_file(called: Site) -> None:
    called.drop(f"{KEYS}_secret_file").set(f"{KEYS}_secret", SECRET)
    faults = "\n".join(called.faults())
    assert f"{KEYS}_secret: a secret never stands in this file" in faults
    assert SECRET not in faults


def test_the_report_shows_neither_secret_nor_query(called: Site) -> None:
    called.set(f"{KEYS}_old_secret_file", str(called.secret("old", OLD)))
    lines = report(called.load())
    assert f"{KEYS}_url = https://hooks.test/agentpod?***   (config.yaml:10)" in lines
    assert [line.split("   ")[0] for line in lines if "callback" in line and "***   " in line] == [
        f"{KEYS}_url = https://hooks.test/agentpod?***",
        f"{KEYS}_secret = ***",
        f"{KEYS}_old_secret = ***",
    ]
    for hidden in ("in-the-query", SECRET, OLD):
        assert hidden not in "\n".join(lines)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("hooks.test/agentpod", "is no URL"),
        ("ftp://hooks.test/in-the-query", "is no URL"),
        ("https:///in-the-query", "is no URL"),
        ("https://hooks.test:99999/in-the-query", "is no URL"),
        ("https://hooks.test:0/in-the-query", "is no URL"),
        ("https://hooks.test/in-the query", "is no URL"),
        ("https://hooks.test\\in-the-query", "is no URL"),
        ("https://hööks.test/in-the-query", "is no URL"),
        ("https://user:in-the-query@hooks.test/", "holds a user name or a password"),
        ("https://hooks.test/#in-the-query", "has a fragment"),
        ("http://hooks.test/in-the-query", "is not encrypted"),
    ],
)
def test_what_is_no_fit_url_is_refused_and_not_repeated(called: Site, url: str, says: str) -> None:
    fault = called.set(f"{KEYS}_url", url).fault()
    assert fault.startswith(f"{KEYS}_url: {says}")
    assert "in-the" not in fault


def test_clear_text_needs_leave_for_private_addresses(called: Site) -> None:
    called.set(f"{KEYS}_url", "http://10.0.0.7:9000/").set(f"{KEYS}_allow_private", value=True)
    assert targets_of(called.load().settings)[ClientName("laptop")].allow_private


@pytest.mark.parametrize(
    ("secret", "says"),
    [
        ("whsec_not*base64*not*base64", "is no base64"),
        ("whsec_bWFkZS11cC1tYWRl", "has 12 bytes; Standard Webhooks asks for 24 to 64"),
        ("YWJj" * 22, "has 66 bytes; Standard Webhooks asks for 24 to 64"),
        ("whsec_whsec_bWFkZS11cC1tYWRlLXVwLW1hZGUtdXAtbWFkZS11cCE=", "is no base64"),
    ],
)
def test_a_secret_that_cannot_sign_is_refused_and_not_repeated(called: Site, secret: str, says: str) -> None:
    called.secret("signing", secret)
    fault = called.fault()
    assert fault.startswith(f"{KEYS}_secret: {says}")
    assert secret not in fault


def test_a_url_needs_a_secret(site: Site) -> None:
    fault = site.set(f"{KEYS}_url", URL).fault()
    assert fault.startswith(f"{KEYS}_url: needs a secret to sign with: set `{KEYS}_secret_file`")


def test_a_secret_whose_file_is_missing_is_one_fault(called: Site) -> None:
    assert called.set(f"{KEYS}_secret_file", "/nowhere/key").fault().startswith(f"{KEYS}_secret_file: there is no")


@pytest.mark.parametrize(("missing", "left"), [("url", "secret"), ("secret_file", "old_secret")])
def test_a_secret_that_signs_nothing_is_refused(called: Site, missing: str, left: str) -> None:
    called.set(f"{KEYS}_old_secret_file", str(called.secret("old", OLD))).drop(f"{KEYS}_{missing}")
    assert any(fault.startswith(f"{KEYS}_{left}: is of no use without") for fault in called.faults())


@pytest.mark.parametrize("again", [SECRET, SECRET.removeprefix("whsec_")])
def test_two_clients_do_not_share_a_secret_however_it_is_written(called: Site, again: str) -> None:
    called.set(
        "clients.server", {"token_file": str(called.secret("server", "another-made-up-token")), "routes": ["ops"]}
    )
    called.set("clients.server.callback_url", URL)
    called.set("clients.server.callback_secret_file", str(called.secret("server-signing", again)))
    fault = called.fault()
    assert fault.startswith(f"clients.server.callback_secret: is the same as `{KEYS}_secret`")


def test_the_old_secret_is_another_one(called: Site) -> None:
    called.set(f"{KEYS}_old_secret_file", str(called.secret("old", SECRET)))
    assert called.fault().startswith(f"{KEYS}_old_secret: is the same as `{KEYS}_secret`")


def test_a_token_is_no_secret_to_sign_with(called: Site) -> None:
    called.secret("laptop", OLD)
    called.secret("signing", OLD)
    assert LAPTOP_TOKEN not in OLD
    assert called.fault().startswith(f"{KEYS}_secret: is the same as a token")


def test_a_reload_takes_new_urls_and_secrets(called: Site) -> None:
    before = called.load().settings
    called.set(f"{KEYS}_url", "https://new.test/")
    called.secret("signing", OLD)
    after = reloadable(before, called.load().settings)
    assert targets_of(after)[ClientName("laptop")] == Target("https://new.test/", (OLD,))
