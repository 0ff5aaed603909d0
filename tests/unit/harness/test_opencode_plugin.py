"""The plugin's own tests run in node; here they are only started where there is one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

PLUGIN = Path(__file__).resolve().parents[3] / "contrib" / "opencode"
NODE = shutil.which("node")


@pytest.mark.skipif(NODE is None, reason="there is no node")
def test_the_plugin_keeps_its_promises() -> None:
    assert NODE is not None
    ran = subprocess.run(
        [NODE, "--test", str(PLUGIN / "agentpod-bot.test.mjs")], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout
