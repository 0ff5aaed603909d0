"""A secret that was put where its file's name belongs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agentpod_bot.errors import ConfigurationError

if TYPE_CHECKING:
    from tests.unit.config.conftest import Site


@pytest.mark.parametrize(
    "secret", ["q83vEjRWeJCrze8/SNFZ4kJ+mcs0hF2xUe7lVXtJpWo=", "/9j4AAQSkZJRgABAQAAAQABAAD2wBDAAYEBQYFBAYGBQY"]
)
@pytest.mark.parametrize("way", ["file", "environment"])
def test_a_base64_token_in_the_place_of_its_files_name_is_not_repeated(site: Site, secret: str, way: str) -> None:
    """Such a token is what config.example.yaml advises to make, and every other one has a slash in it."""
    if way == "file":
        site.set("clients.laptop.token_file", secret)
    else:
        site.environ["AGENTPOD_BOT_CLIENTS__LAPTOP__TOKEN_FILE"] = secret
    with pytest.raises(ConfigurationError) as refused:
        site.load()
    assert "clients.laptop.token_file" in str(refused.value)
    assert secret[:12] not in str(refused.value)


@pytest.mark.parametrize(
    "secret", ["q83vEjRWeJCrze8/SNFZ4kJ+mcs0hF2xUe7lVXtJpWo=", "~correct-horse-battery-staple", 10**20]
)
def test_nor_is_it_where_the_token_is_given_twice_or_looks_like_no_path(site: Site, secret: str | int) -> None:
    site.set("clients.laptop.token_file", secret).env(
        "AGENTPOD_BOT_CLIENTS__LAPTOP__TOKEN", "made-up-token-of-a-laptop"
    )
    problems = site.faults()
    assert all(problem.startswith("clients.laptop.token") for problem in problems)
    assert str(secret)[:12] not in "".join(problems)


def test_a_path_that_is_only_misspelt_is_shown(site: Site) -> None:
    site.set("clients.laptop.token_file", str(site.folder / "laptpo"))
    assert f'there is no file "{site.folder / "laptpo"}"' in site.fault()
