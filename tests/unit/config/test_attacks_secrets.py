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
