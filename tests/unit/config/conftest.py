from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from agentpod_bot.config.load import Loaded, load
from agentpod_bot.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

ACCESS_TOKEN = "syt_bWFkZS11cA_notarealtokenatall"
LAPTOP_TOKEN = "bWFkZSB1cCBmb3IgYSB0ZXN0"


class Site:
    """A folder with a configuration that is right, to be made wrong in one place."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "config.yaml"
        self.environ: dict[str, str] = {}
        self.says: dict[str, Any] = {
            "homeserver": {
                "url": "https://hs.test",
                "user_id": "@pod:hs.test",
                "access_token_file": str(self.secret("access_token", ACCESS_TOKEN)),
            },
            "clients": {"laptop": {"token_file": str(self.secret("laptop", LAPTOP_TOKEN)), "routes": ["ops"]}},
            "routes": {"ops": {"room": "!ops:hs.test", "approvers": ["@owner:hs.test"]}},
        }

    def secret(self, name: str, content: str, mode: int = 0o600, folder: Path | None = None) -> Path:
        """A file with a secret."""
        path = (folder or self.folder) / name
        path.write_text(content + "\n", encoding="utf-8")
        path.chmod(mode)
        return path

    def set(self, key: str, value: Any) -> Site:
        """Give a key another value; the parts of its path stand between full stops."""
        *sections, last = key.split(".")
        inside = self.says
        for section in sections:
            inside = inside.setdefault(section, {})
        inside[last] = copy.deepcopy(value)
        return self

    def drop(self, key: str) -> Site:
        """Leave a key out."""
        *sections, last = key.split(".")
        inside = self.says
        for section in sections:
            inside = inside[section]
        del inside[last]
        return self

    def env(self, variable: str, text: str) -> Site:
        """Set an environment variable."""
        self.environ[variable] = text
        return self

    def credentials(self) -> Path:
        """A credentials directory, as a service manager makes it."""
        folder = self.folder / "credentials"
        folder.mkdir(exist_ok=True)
        self.environ["CREDENTIALS_DIRECTORY"] = str(folder)
        return folder

    def load(self) -> Loaded:
        """Write the file and read it."""
        self.path.write_text(yaml.safe_dump(self.says, sort_keys=False, allow_unicode=True), encoding="utf-8")
        return load(self.path, self.environ)

    def faults(self) -> tuple[str, ...]:
        """Every line that refuses the configuration."""
        with pytest.raises(ConfigurationError) as refused:
            self.load()
        assert refused.value.exit_code == 78
        return tuple(refused.value.problems)

    def fault(self) -> str:
        """The only line that refuses the configuration."""
        (only,) = self.faults()
        return only


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)
