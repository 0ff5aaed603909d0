from __future__ import annotations

import json
import shlex
from dataclasses import replace
from typing import Any

import pytest

from agentpod_bot.harness.snippets import Place, printed, version_of
from agentpod_bot.harness.snippets_all import SNIPPETS
from agentpod_bot.harness.snippets_claude import CLOSING

PLACE = Place(token_file="/etc/agentpod-bot/laptop.token", program="/opt/agentpod-bot/bin/agentpod-bot")
ODD = replace(
    PLACE, token_file="/home/a b/it's; rm -rf $HOME/x.token", program="/opt/my bot/agentpod-bot", route="ops&x=1"
)
HOOKED = ("codex-hook", "copilot", "qwen", "gemini", "cursor")


def settings_of(name: str, place: Place = PLACE, version: str | None = None) -> list[Any]:
    """Every piece of JSON in a snippet, read."""
    snippet = SNIPPETS[name](place, version)
    return [json.loads(piece.text) for piece in snippet.pieces if piece.language == "json"]


def members(content: Any, name: str) -> list[Any]:
    """Every value that stands under a name anywhere."""
    match content:
        case dict():
            here = [content[name]] if name in content else []
            return here + [each for value in content.values() for each in members(value, name)]
        case list():
            return [each for value in content for each in members(value, name)]
        case _:
            return []


def commands(content: Any) -> list[list[str]]:
    """The words of every command that settings start."""
    lines = [each for name in ("command", "bash") for each in members(content, name)]
    return [shlex.split(line) for line in lines if line != ODD.program]


@pytest.mark.parametrize("name", SNIPPETS)
@pytest.mark.parametrize("place", [PLACE, ODD], ids=["plain", "odd"])
def test_every_snippet_of_settings_is_json_and_says_what_its_user_has_to_know(name: str, place: Place) -> None:
    settings_of(name, place)
    text = printed(SNIPPETS[name](place, None))
    assert text.startswith("## ")
    for said in ("Always", "Nobody answers in time", "The daemon is down", "Answered in its own dialog", "Tried"):
        assert f"- **{said}**: " in text


@pytest.mark.parametrize(
    ("version", "event", "kind"),
    [
        ("2.1.295", "PermissionRequest", "http"),
        ("2.1.332 (Claude Code)", "PermissionRequest", "http"),
        ("10.0.0", "PermissionRequest", "http"),
        ("2.1.294", "PermissionRequest", "command"),
        ("2.1.63", "PermissionRequest", "command"),
        ("2.0.45", "PermissionRequest", "command"),
        ("2.0.44", "PreToolUse", "command"),
        ("1.0.128", "PreToolUse", "command"),
        (None, "PermissionRequest", "command"),
        ("", "PermissionRequest", "command"),
        ("newest", "PermissionRequest", "command"),
        ("2.1.295-beta.1", "PermissionRequest", "command"),
        ("2.1", "PermissionRequest", "command"),
    ],
)
def test_claude_code_gets_a_hook_that_denies_while_the_daemon_is_down_in_its_version(
    version: str | None, event: str, kind: str
) -> None:
    """A hook that posts lets the terminal decide then, in every version before the first that blocks."""
    (content,) = settings_of("claude-code", version=version)
    ((hook,),) = [group["hooks"] for group in content["hooks"][event]]
    assert hook["type"] == kind
    assert event == "PreToolUse" or hook["onFailure"] == "block"


def test_claude_codes_hook_waits_for_as_long_as_the_daemon_is_told_that_it_waits() -> None:
    (content,) = settings_of("claude-code", replace(PLACE, timeout_s=4_321, route="ops"), "2.1.332")
    (hook,) = content["hooks"]["PermissionRequest"][0]["hooks"]
    assert hook["timeout"] == 4_321
    assert hook["url"] == "http://127.0.0.1:8470/v1/harness/claude-code?route=ops&timeout=4321"
    assert hook["headers"] == {"Authorization": "Bearer $AGENTPOD_TOKEN"}
    assert hook["allowedEnvVars"] == ["AGENTPOD_TOKEN"]


@pytest.mark.parametrize("version", ["2.1.332", None])
def test_claude_code_tells_when_its_terminal_answered(version: str | None) -> None:
    (content,) = settings_of("claude-code", version=version)
    asking = content["hooks"].pop("PermissionRequest")[0]["hooks"][0]
    assert set(content["hooks"]) == set(CLOSING)
    for groups in content["hooks"].values():
        ((told,),) = [group["hooks"] for group in groups]
        assert told.get("url") == asking.get("url")
        assert told.get("command") == asking.get("command")
        assert "onFailure" not in told


def test_claude_code_is_told_in_which_mode_it_asks() -> None:
    assert "--permission-mode default" in printed(SNIPPETS["claude-code"](PLACE, "2.1.332"))


@pytest.mark.parametrize("name", [*HOOKED, "claude-code"])
def test_a_hook_command_names_daemon_token_file_route_and_time_out_whatever_is_in_them(name: str) -> None:
    started = commands(settings_of(name, ODD))
    assert started
    for words in started:
        assert words[:3] == [ODD.program, "hook", name]
        said = dict(zip(words[3::2], words[4::2], strict=True))
        assert said == {
            "--url": "http://127.0.0.1:8470",
            "--token-file": ODD.token_file,
            "--route": "ops&x=1",
            "--timeout": "86400",
        }


@pytest.mark.parametrize("name", [*HOOKED, "claude-code"])
def test_the_first_way_of_every_hook_denies_while_the_daemon_is_down(name: str) -> None:
    assert commands(settings_of(name)[0])
    assert not members(settings_of(name)[0], "url")


@pytest.mark.parametrize(
    ("name", "member", "longest"),
    [
        ("codex-hook", "timeout", [86_400]),
        ("copilot", "timeoutSec", [86_400, 86_400]),
        ("qwen", "timeout", [86_400_000, 86_400]),
        ("gemini", "timeout", [86_400_000]),
        ("cursor", "timeout", [86_400, 86_400]),
    ],
)
def test_a_time_out_is_in_the_unit_of_its_harness(name: str, member: str, longest: list[int]) -> None:
    """Qwen Code counts milliseconds for a command and seconds for a post."""
    assert members(settings_of(name), member) == longest


def test_copilots_event_is_named_so_that_its_call_names_it_too() -> None:
    assert [list(content["hooks"]) for content in settings_of("copilot")] == [["PermissionRequest"]] * 2


def test_copilot_is_let_post_to_this_machine_only_where_the_address_is_no_https() -> None:
    local = printed(SNIPPETS["copilot"](PLACE, None))
    remote = printed(SNIPPETS["copilot"](replace(PLACE, url="https://gate.example.org"), None))
    assert "export COPILOT_HOOK_ALLOW_LOCALHOST=1" in local
    assert "export COPILOT_HOOK_ALLOW_LOCALHOST=1" not in remote
    assert len(settings_of("copilot", version="1.0.34")) == 1


def test_every_hook_of_cursor_denies_where_it_cannot_be_started() -> None:
    (content,) = settings_of("cursor")
    assert set(content["hooks"]) == {"beforeShellExecution", "beforeMCPExecution"}
    assert members(content, "failClosed") == [True, True]


@pytest.mark.parametrize("name", [name for name in SNIPPETS if name != "opencode"])
def test_where_there_is_only_a_socket_nothing_is_told_to_post_to_an_address(name: str) -> None:
    place = replace(PLACE, url=None, socket="/run/agentpod bot.sock")
    text = printed(SNIPPETS[name](place, "2.1.332"))
    assert not members(settings_of(name, place, "2.1.332"), "url")
    assert "/run/agentpod bot.sock" in text
    assert "--url" not in text


def test_opencodes_plugin_cannot_use_a_socket() -> None:
    with pytest.raises(ValueError, match="a socket has none"):
        SNIPPETS["opencode"](replace(PLACE, url=None, socket="/run/a.sock"), None)


@pytest.mark.parametrize("name", ["codex", "acp", "mcp"])
def test_a_bridge_is_started_with_all_it_needs(name: str) -> None:
    text = printed(SNIPPETS[name](replace(PLACE, route="ops"), None))
    expected = "mcp" if name == "mcp" else f"proxy {name}"
    assert f"{expected} " in text or f'"{expected.split(maxsplit=1)[0]}"' in text
    assert "ops" in text
    assert PLACE.token_file in text


@pytest.mark.parametrize("name", ["gaia", "open-science", "langchain"])
def test_a_call_for_a_shell_posts_json_to_the_harnesss_own_door(name: str) -> None:
    header, call = SNIPPETS[name](ODD, None).pieces
    address, body = call.text.split(" <<'JSON'\n")
    assert shlex.split(address)[-1] == f"http://127.0.0.1:8470/v1/harness/{name}?route=ops%26x%3D1"
    assert isinstance(json.loads(body.removesuffix("\nJSON")), dict)
    assert header.text.startswith("(umask 077 && ")
    assert shlex.quote(ODD.token_file) in header.text


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("2.1.332", (2, 1, 332)),
        ("v1.0.35", (1, 0, 35)),
        ("2.1.332 (Claude Code)", (2, 1, 332)),
        ("claude 2.1.332", None),
        ("2.1.332-rc.1", None),
        ("2.1.332.4", None),
        ("٢.1.332", None),
        (None, None),
    ],
)
def test_only_a_released_version_is_known(text: str | None, version: tuple[int, int, int] | None) -> None:
    assert version_of(text) == version
