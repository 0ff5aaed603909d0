from __future__ import annotations

from pathlib import Path

from agentpod_bot.harness.snippets import Place, printed
from agentpod_bot.harness.snippets_all import SNIPPETS, documented

PAGE = Path(__file__).resolve().parents[2] / "docs" / "harnesses.md"
PLACE = Place(token_file="/etc/agentpod-bot/laptop.token", program="/opt/agentpod-bot/bin/agentpod-bot")


def test_the_page_of_harnesses_says_what_connect_prints_and_nothing_else() -> None:
    page = PAGE.read_text(encoding="utf-8")
    sections = "\n\n".join(printed(each) for each in documented(PLACE))
    assert page.endswith(f"\n\n{sections}\n")
    assert "\n## " not in page.removesuffix(f"{sections}\n").rstrip()


def test_every_harness_has_a_section() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in SNIPPETS if f"(`{name}`)" not in page] == []
