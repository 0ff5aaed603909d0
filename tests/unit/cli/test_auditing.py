from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

from agentpod_bot.store.database import open_store
from tests.unit.cli.test_commands import configured
from tests.unit.store.examples import T0, audit_line

if TYPE_CHECKING:
    from pathlib import Path

    from agentpod_bot.ports import Tx
    from tests.unit.cli.conftest import Command

MINUTE = 60_000
HEAD = re.compile(r"head ([0-9]+:[0-9a-f]{64})\n")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with five lines, a minute apart from T0 on; nobody uses it."""
    path = tmp_path / "agentpod.db"
    written(path, 5)
    return path


def written(path: Path, count: int, *, prune_ms: int = 0) -> None:
    """Write so many further lines; prune what is older."""

    def work(tx: Tx) -> None:
        first = tx.head().seq
        for at in range(first, first + count):
            tx.audit(audit_line("asked", at_ms=T0 + at * MINUTE, event_id=f"$\u2028{at}"))
        tx.prune_audit(prune_ms)

    async def write() -> None:
        store = open_store(path)
        await store.run(work)
        await store.close()

    asyncio.run(write())


def exported(command: Command, path: Path, *words: str) -> list[str]:
    """The lines of an export."""
    result = command("audit", "export", "--store", str(path), *words)
    assert result.exit_code == 0
    assert HEAD.fullmatch(result.stderr)
    lines = result.stdout.splitlines()
    assert json.loads(lines[-1])["head"] == HEAD.fullmatch(result.stderr)[1]  # type: ignore[index]  # it matched
    return list(lines)


def numbers(lines: list[str]) -> list[int]:
    return [json.loads(line)["seq"] for line in lines[1:-1]]


def verified(command: Command, tmp_path: Path, lines: list[str]) -> Any:
    """What verifying a file with these lines says."""
    file = tmp_path / "audit.jsonl"
    file.write_text("".join(f"{line}\n" for line in lines))
    return command("audit", "verify", str(file))


def test_the_audit_of_a_configured_store_needs_no_secret(command: Command, path: Path, tmp_path: Path) -> None:
    config = str(configured(tmp_path))
    (tmp_path / "access_token").unlink()
    assert command("check-config", "--config", config).exit_code == 78
    assert "Lines 1 to 5" in command("audit", "verify", "--config", config).stdout
    assert (
        command("audit", "export", "--config", config).stdout == command("audit", "export", "--store", str(path)).stdout
    )


def test_an_export_holds_every_column_of_every_line_and_can_be_verified(
    command: Command, path: Path, tmp_path: Path
) -> None:
    lines = exported(command, path)
    assert numbers(lines) == [1, 2, 3, 4, 5]
    assert json.loads(lines[1]) == {
        "seq": 1,
        "at_ms": T0,
        "what": "asked",
        "question_row": None,
        "client": None,
        "request_id": None,
        "revision": None,
        "digest": None,
        "room_id": None,
        "sender": None,
        "event_id": "$\u20280",
        "option_id": None,
        "meaning": None,
        "scope": None,
        "detail": None,
        "hash": json.loads(lines[1])["hash"],
    }
    result = verified(command, tmp_path, lines)
    assert result.exit_code == 0
    assert "Lines 1 to 5: each follows from the one before it." in result.stdout
    piped = command("audit", "verify", "-", input="".join(f"{line}\n" for line in lines))
    assert piped.stdout == result.stdout


def test_since_begins_with_the_first_line_of_then_and_says_what_it_follows(
    command: Command, path: Path, tmp_path: Path
) -> None:
    lines = exported(command, path, "--since", "2026-11-07T10:02:00Z")
    assert numbers(lines) == [3, 4, 5]
    assert json.loads(lines[0])["after"] == f"2:{json.loads(exported(command, path)[2])['hash']}"
    assert verified(command, tmp_path, lines).exit_code == 0
    none = exported(command, path, "--since", "2036-11-07T12:02:00+02:00")
    assert numbers(none) == []
    assert "There is no line after line 5." in verified(command, tmp_path, none).stdout
    assert numbers(exported(command, path, "--since", "36500d")) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("since", ["2026-11-07", "2026-11-07T10:30:00", "yesterday", "7", ""])
def test_a_time_that_is_none_is_refused(command: Command, path: Path, since: str) -> None:
    result = command("audit", "export", "--store", str(path), "--since", since)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--since" in result.stderr


def test_the_store_is_the_configurations_unless_another_is_named(command: Command, path: Path) -> None:
    config = configured(path.parent)
    result = command("audit", "verify", "--config", str(config))
    assert result.exit_code == 0
    assert result.stdout == command("audit", "verify", "--store", str(path)).stdout
    assert command("audit", "export", "--config", str(config)).exit_code == 0


def test_a_store_that_is_in_use_can_be_verified_and_pruned_lines_do_not_break_it(command: Command, path: Path) -> None:
    written(path, 0, prune_ms=T0 + 2 * MINUTE)

    async def meanwhile() -> Any:
        store = open_store(path)
        await store.run(lambda tx: tx.audit(audit_line("selected")))
        result = await asyncio.to_thread(command, "audit", "verify", "--store", str(path))
        await store.close()
        return result

    result = asyncio.run(meanwhile())
    assert result.exit_code == 0
    assert "Lines 3 to 6: each follows" in result.stdout


def changed(line: str, **changes: Any) -> str:
    return json.dumps(json.loads(line) | changes)


@pytest.mark.parametrize(
    ("tamper", "said"),
    [
        (lambda lines: [*lines[:3], changed(lines[3], what="late"), *lines[4:]], "line 3 is not what was written"),
        (lambda lines: [*lines[:3], *lines[4:]], "line 3 is missing"),
        (lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]], "line 2 is missing"),
        (lambda lines: [*lines[:3], lines[2], *lines[3:]], "line 3 is missing"),
        (lambda lines: [*lines[:3], "", *lines[3:]], "line 3 is missing"),
        (lambda lines: [*lines[:3], lines[3].replace('{"seq"', '{"seq":3,"seq"'), *lines[4:]], "line 3 is missing"),
        (lambda lines: [*lines[:3], changed(lines[3], seq="3"), *lines[4:]], "line 3 is missing"),
        (lambda lines: [*lines[:3], changed(lines[3], seq=3.0), *lines[4:]], "line 3 is missing"),
        (lambda lines: [*lines[:3], changed(lines[3], approved=True), *lines[4:]], "line 3 has other columns"),
        (lambda lines: [changed(lines[0], after=f"1:{'0' * 64}"), *lines[1:]], "line 2 is missing"),
        (lambda lines: lines[:-1], "cut off after line 5"),
        (lambda lines: lines[:1], "cut off after line 0"),
        (lambda lines: [*lines[:-2], lines[-1]], "names another head than line 4"),
        (lambda lines: [*lines, lines[1]], "something stands after the last line, 5"),
        (lambda lines: [*lines, lines[-1]], "something stands after the last line, 5"),
    ],
)
def test_a_file_in_which_anything_was_changed_is_found_out(
    command: Command, path: Path, tmp_path: Path, tamper: Any, said: str
) -> None:
    result = verified(command, tmp_path, tamper(exported(command, path)))
    assert result.exit_code == 1
    assert result.stdout.startswith("The audit is broken: ")
    assert said in result.stdout


@pytest.mark.parametrize("first", ["", "{}", "no JSON", '{"format":"agentpod-audit/2","after":"0:00"}', "[1]"])
def test_a_file_that_is_no_export_is_refused(command: Command, tmp_path: Path, first: str) -> None:
    result = verified(command, tmp_path, [first])
    assert (result.exit_code, result.stdout) == (78, "")
    assert "none that" in result.stderr


def test_what_cannot_be_read_is_refused(command: Command, tmp_path: Path) -> None:
    assert command("audit", "verify", str(tmp_path / "nowhere.jsonl")).exit_code == 78
    assert command("audit", "verify", "--store", str(tmp_path / "nowhere.db")).exit_code == 78
    assert command("audit", "export", "--store", str(tmp_path / "nowhere.db")).exit_code == 78


def test_a_change_in_the_store_is_found_and_the_first_bad_line_is_named(command: Command, path: Path) -> None:
    with sqlite3.connect(path) as other:
        other.execute("UPDATE audit SET what = 'selected' WHERE seq >= 4")
    other.close()
    result = command("audit", "verify", "--store", str(path))
    assert result.exit_code == 1
    assert "The audit is broken: line 4 is not what was written" in result.stdout


def test_newest_lines_that_were_taken_away_show_only_with_a_head_that_was_kept(command: Command, path: Path) -> None:
    head = HEAD.fullmatch(command("audit", "export", "--store", str(path)).stderr)
    assert head is not None
    written(path, 2)
    for given in (head[1], head[1].partition(":")[2].upper()):
        result = command("audit", "verify", "--store", str(path), "--head", given)
        assert result.exit_code == 0
        assert "The head that you gave is among them" in result.stdout
    with sqlite3.connect(path) as other:
        other.execute("DELETE FROM audit WHERE seq >= 5")
    other.close()
    silent = command("audit", "verify", "--store", str(path))
    assert silent.exit_code == 0
    assert "Only a head that was kept elsewhere" in silent.stdout
    result = command("audit", "verify", "--store", str(path), "--head", head[1])
    assert result.exit_code == 1
    assert "not among these lines" in result.stdout


@pytest.mark.parametrize("head", ["5", "0" * 63, "0" * 65, f"x:{'0' * 64}"])
def test_a_head_that_is_none_is_a_mistake_of_the_call(command: Command, path: Path, head: str) -> None:
    assert command("audit", "verify", "--store", str(path), "--head", head).exit_code == 2
