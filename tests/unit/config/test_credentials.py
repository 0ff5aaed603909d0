from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from agentpod_bot.config.fault import shown
from agentpod_bot.config.source import CredentialFile, InEnvironment
from tests.unit.config.conftest import ACCESS_TOKEN, LAPTOP_TOKEN

if TYPE_CHECKING:
    from tests.unit.config.conftest import Site

FROM_ENVIRONMENT = "a-token-from-the-environment"


def test_a_secret_comes_from_the_file_that_its_key_names(site: Site) -> None:
    settings = site.load().settings
    assert settings.homeserver.access_token.get_secret_value() == ACCESS_TOKEN
    assert settings.clients["laptop"].token.get_secret_value() == LAPTOP_TOKEN


def test_a_secret_comes_from_the_environment(site: Site) -> None:
    site.drop("clients.laptop.token_file").env("AGENTPOD_BOT_CLIENTS__LAPTOP__TOKEN", FROM_ENVIRONMENT)
    loaded = site.load()
    assert loaded.settings.clients["laptop"].token.get_secret_value() == FROM_ENVIRONMENT
    assert loaded.sources["clients.laptop.token"] == InEnvironment("AGENTPOD_BOT_CLIENTS__LAPTOP__TOKEN")


def test_the_file_of_a_secret_can_be_named_by_the_environment(site: Site) -> None:
    site.drop("clients.laptop.token_file")
    site.env("AGENTPOD_BOT_CLIENTS__LAPTOP__TOKEN_FILE", str(site.folder / "laptop"))
    assert site.load().settings.clients["laptop"].token.get_secret_value() == LAPTOP_TOKEN


@pytest.mark.parametrize("mode", [0o400, 0o440, 0o640])
def test_a_secret_comes_from_the_credentials_directory_also_where_a_group_reads_it(site: Site, mode: int) -> None:
    path = site.secret("homeserver.access_token", ACCESS_TOKEN, mode, site.credentials())
    loaded = site.drop("homeserver.access_token_file").load()
    assert loaded.settings.homeserver.access_token.get_secret_value() == ACCESS_TOKEN
    assert loaded.sources["homeserver.access_token"] == CredentialFile(path)


def test_a_file_key_may_name_a_credential_that_a_group_reads(site: Site) -> None:
    path = site.secret("laptop-token", "another-made-up-token", 0o440, site.credentials())
    loaded = site.set("clients.laptop.token_file", str(path)).load()
    assert loaded.settings.clients["laptop"].token.get_secret_value() == "another-made-up-token"


def test_a_credential_that_everybody_reads_is_refused(site: Site) -> None:
    path = site.secret("clients.laptop.token", LAPTOP_TOKEN, 0o444, site.credentials())
    fault = site.drop("clients.laptop.token_file").fault()
    assert fault.startswith(
        f"clients.laptop.token: {shown(str(path))} has mode 0444, which opens it to everybody; run: chmod o-rwx"
    )


@pytest.mark.parametrize(
    ("mode", "written", "who"),
    [
        (0o644, "0644", "everybody"),
        (0o604, "0604", "everybody"),
        (0o640, "0640", "its group"),
        (0o620, "0620", "its group"),
        (0o601, "0601", "everybody"),
        (0o4644, "4644", "everybody"),
    ],
)
def test_a_secret_file_that_others_can_open_is_refused_with_the_remedy(
    site: Site, mode: int, written: str, who: str
) -> None:
    path = site.secret("laptop", LAPTOP_TOKEN, mode)
    says = f'clients.laptop.token_file: "{path}" has mode {written}, which opens it to {who}; run: chmod 600 {path} ('
    assert site.fault().startswith(says)


def test_a_missing_secret_file_is_named(site: Site) -> None:
    site.set("clients.laptop.token_file", "/nowhere/laptop")
    assert site.fault().startswith('clients.laptop.token_file: there is no file "/nowhere/laptop" (config.yaml:')


def test_a_secret_in_place_of_its_files_name_is_not_repeated(site: Site) -> None:
    fault = site.set("clients.laptop.token_file", LAPTOP_TOKEN).fault()
    assert "as it may be the secret itself" in fault
    assert LAPTOP_TOKEN not in fault


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "gives an empty secret"),
        (" \n\t\n", "gives an empty secret"),
        ("short", "gives a secret of 5 characters; it needs 16 at least"),
        ("x" * 15, "gives a secret of 15 characters"),
        ("two words of some length", "is not one word of visible ASCII"),
        ("sixteen-or-more\x00chars", "is not one word of visible ASCII"),
        ("pässwort-pässwort", "is not one word of visible ASCII"),
        ("two-lines-of-text\ntwo-lines-of-text", "is not one word of visible ASCII"),
        ("CHANGE_ME_CHANGE_ME_CHANGE_ME", "gives a placeholder"),
        ("x" * 20_000, "is larger than 16384 bytes"),
    ],
)
def test_a_file_whose_content_is_no_good_secret_is_refused(site: Site, content: str, says: str) -> None:
    site.secret("laptop", content)
    fault = site.fault()
    assert fault.startswith("clients.laptop.token_file: ")
    assert says in fault
    assert content.strip() not in fault or not content.strip()


def test_an_empty_variable_is_an_empty_secret_and_not_an_absent_one(site: Site) -> None:
    site.drop("clients.laptop.token_file").env("AGENTPOD_BOT_CLIENTS__LAPTOP__TOKEN", "")
    assert site.fault().startswith("clients.laptop.token: gives an empty secret (environment variable AGENTPOD")


def test_a_secret_file_that_is_no_text_is_refused(site: Site) -> None:
    (site.folder / "laptop").write_bytes(b"\xff" * 20)
    assert "is not UTF-8" in site.fault()


def test_a_pipe_or_a_folder_in_place_of_a_secret_file_is_refused_and_does_not_hang(site: Site) -> None:
    os.mkfifo(site.folder / "pipe", 0o600)
    (site.folder / "folder").mkdir(mode=0o700)
    assert "is no regular file" in site.set("clients.laptop.token_file", str(site.folder / "pipe")).fault()
    assert "is no regular file" in site.set("clients.laptop.token_file", str(site.folder / "folder")).fault()


@pytest.mark.parametrize("key", ["homeserver.access_token", "clients.laptop.token"])
def test_a_secret_in_the_file_itself_is_refused_with_its_right_place_and_not_repeated(site: Site, key: str) -> None:
    fault = site.set(key, FROM_ENVIRONMENT).fault()
    assert fault.startswith(f"{key}: a secret never stands in this file; write it into a file of mode 0600 and name")
    assert f"`{key}_file`" in fault
    assert FROM_ENVIRONMENT not in fault


def test_two_places_for_one_secret_are_refused_and_both_named(site: Site) -> None:
    site.env("AGENTPOD_BOT_CLIENTS__LAPTOP__TOKEN", FROM_ENVIRONMENT)
    fault = site.fault()
    assert fault.startswith("clients.laptop.token: is given 2 times: ")
    assert f"secret file {site.folder / 'laptop'}" in fault
    assert "environment variable AGENTPOD_BOT_CLIENTS__LAPTOP__TOKEN" in fault
    site.secret("clients.laptop.token", LAPTOP_TOKEN, 0o400, site.credentials())
    fault = site.fault()
    assert fault.startswith("clients.laptop.token: is given 3 times: ")
    assert f"credential file {site.credentials() / 'clients.laptop.token'}" in fault


def test_two_clients_with_one_token_are_refused(site: Site) -> None:
    path = site.secret("desktop", LAPTOP_TOKEN)
    fault = site.set("clients.desktop", {"token_file": str(path), "routes": ["ops"]}).fault()
    assert fault.startswith("clients.desktop.token: is the same as `clients.laptop.token`; each client needs")
    assert LAPTOP_TOKEN not in fault


def test_a_client_with_the_bots_own_access_token_is_refused(site: Site) -> None:
    site.secret("laptop", ACCESS_TOKEN)
    assert site.fault().startswith("clients.laptop.token: is the same as `homeserver.access_token`")


def test_one_token_twice_is_told_even_where_the_rest_of_the_client_is_wrong(site: Site) -> None:
    path = site.secret("desktop", LAPTOP_TOKEN)
    faults = site.set("clients.desktop", {"token_file": str(path), "routes": []}).faults()
    assert [fault.partition(":")[0] for fault in faults] == ["clients.desktop.routes", "clients.desktop.token"]


@pytest.mark.parametrize("password", ["short", "correct horse", " spaces count ", "pässwörd"])
def test_a_password_is_whatever_a_person_chose(site: Site, password: str) -> None:
    site.set("homeserver.device_id", "POD").set("homeserver.password_file", str(site.secret("password", password)))
    found = site.load().settings.homeserver.password
    assert found is not None
    assert found.get_secret_value() == password


@pytest.mark.parametrize("password", ["", "two\nlines", "CHANGE_ME"])
def test_what_is_no_password_is_refused(site: Site, password: str) -> None:
    site.set("homeserver.device_id", "POD").set("homeserver.password_file", str(site.secret("password", password)))
    assert site.fault().startswith("homeserver.password_file: gives ")


def test_a_password_without_the_device_to_keep_is_refused(site: Site) -> None:
    site.set("homeserver.password_file", str(site.secret("password", "correct horse")))
    assert site.fault().startswith("homeserver.device_id: is required with `homeserver.password`")


def test_a_refresh_token_that_no_file_would_keep_is_refused(site: Site) -> None:
    site.env("AGENTPOD_BOT_HOMESERVER__REFRESH_TOKEN", "a-refresh-token-1")
    assert site.fault().startswith("homeserver.refresh_token: is another one after each use")
