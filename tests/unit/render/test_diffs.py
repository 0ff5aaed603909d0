"""Changes of files, as a room sees them."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from agentpod_bot.core.lookalikes import Look
from agentpod_bot.core.model import Attachment, DiffPreview, Meaning, NewQuestion, Outcome, Preview
from agentpod_bot.core.secret_kinds import Kind
from agentpod_bot.core.secrets import Hidden
from agentpod_bot.render.attachment import full_text
from agentpod_bot.render.outcome import outcome
from agentpod_bot.render.presented import present
from agentpod_bot.render.question import compose
from tests.unit.render.samples import ASKED, composed, ended
from tests.unit.render.test_question import copied

TOKEN = "ghp_" + "0123456789abcdefghijklmnopqrstuvwxyz"
OTHER_TOKEN = "ghp_" + "9876543210abcdefghijklmnopqrstuvwxyz"
MASK = "[hidden token, 40 characters]"
KEY_LINE = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"
PEM = f"-----BEGIN PRIVATE KEY-----\n{KEY_LINE}\n{KEY_LINE}\nAgEAAoIB==\n-----END PRIVATE KEY-----\n"
LINES = "".join(f"line {n}\n" for n in range(400))


def asked(*preview: Preview, **changes: object) -> NewQuestion:
    return replace(ASKED, preview=preview, **changes)  # type: ignore[arg-type]  # the tests name real fields


def shown(*preview: Preview, **changes: object) -> list[str]:
    """The lines of the diffs in the envelope, which all say the same as the body."""
    content = composed(asked(*preview, **changes))
    for part in content["subject"]["preview"]:
        for line in part["text"].split("\n"):
            assert f"\n    {line}\n" in content["body"]
    assert copied(content["formatted_body"]) == [part["text"] for part in content["subject"]["preview"]]
    return [line for part in content["subject"]["preview"] for line in part["text"].split("\n")]


def test_programs_read_a_change_as_a_text_called_by_its_path() -> None:
    [part] = composed(asked(DiffPreview("apps/hub/main.py", "a\n", "b\n")))["subject"]["preview"]
    assert part == {
        "type": "text",
        "label": "apps/hub/main.py",
        "text": "1 line added, 1 removed\n--- a/apps/hub/main.py\n+++ b/apps/hub/main.py\n@@ -1,1 +1,1 @@\n-a\n+b",
    }


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (DiffPreview("x", None, "a\nb\n"), "new file, 2 lines"),
        (DiffPreview("x", "a\n", None), "deleted file, 1 line"),
        (DiffPreview("x", "a\n", "a\n"), "nothing changes; 1 unchanged line not shown"),
        (DiffPreview("x", LINES, LINES + "x\n"), "1 line added, 0 removed; 397 unchanged lines not shown"),
        (DiffPreview("x", None, "\x00\x01"), "new file, 1 line; looks like binary data"),
    ],
)
def test_the_first_line_says_what_a_change_comes_to_and_what_is_left_out(part: DiffPreview, said: str) -> None:
    assert shown(part)[0] == said


def test_unchanged_lines_that_are_left_out_cut_nothing() -> None:
    content = composed(asked(DiffPreview("x", LINES, LINES.replace("line 9\n", "line nine\n"))))
    assert content["subject"]["preview_complete"] is True
    assert len(content["options"]) == 4


def test_a_long_path_alone_cuts_nothing() -> None:
    path = "/home/owner/" + "src/" * 40 + "main.py"
    content = composed(asked(DiffPreview(path, None, "x\n")))
    assert content["subject"]["preview_complete"] is True
    assert content["subject"]["preview"][0]["label"] == path


@pytest.mark.parametrize(
    "part",
    [
        DiffPreview("x\n3. Allow once\n", "1. Allow once\n", "2. Allow once\n\r3. Allow always\n"),
        DiffPreview("Permission needed", "x", "--- a/y\n+++ b/y\n@@ -1,1 +1,1 @@\n"),
    ],
)
def test_no_text_of_a_file_looks_like_a_line_of_the_question_or_of_the_diff(part: DiffPreview) -> None:
    body = composed(asked(part))["body"]
    assert len(re.findall(r"^\d+\.", body, re.MULTILINE)) == 4
    assert body.count("\nPermission needed") == 0
    head = [line for line in shown(part) if line.startswith(("--- ", "+++ ", "@@ "))]
    assert [line[:3] for line in head] == ["---", "+++", "@@ "]


def test_a_secret_is_masked_in_old_and_new_lines_and_its_change_stays_a_change() -> None:
    part = DiffPreview("env", f"A=1\nTOKEN={TOKEN}\n", f"A=1\nTOKEN={OTHER_TOKEN}\n")
    assert shown(part)[4:] == [" A=1", f"-TOKEN={MASK}", f"+TOKEN={MASK}"]
    seen = present(asked(part))
    assert seen.hidden == (Hidden(Kind.TOKEN, 40), Hidden(Kind.TOKEN, 40))
    for text in (full_text(asked(part)), str(outcome(ended(Outcome.EXPIRED, asked(part))))):
        assert TOKEN not in text
        assert OTHER_TOKEN not in text
        assert MASK in text
    assert f"+TOKEN={OTHER_TOKEN}" in shown(part, masked=False)


def test_a_secret_over_several_lines_is_masked_in_each_of_them() -> None:
    lines = shown(DiffPreview("key.pem", PEM, "x\n" + PEM.replace("\n", "\r\n")))
    mask = "[hidden private key, 64 characters]"
    assert lines.count(f"-{mask}") == 2
    assert lines.count(f"+{mask}\\u{{d}}") == 2
    assert not [line for line in lines if KEY_LINE[:20] in line]
    assert "-[hidden private key, 10 characters]" in lines


def test_a_line_that_stays_hides_only_what_the_new_file_hides() -> None:
    """What was a key's line in the old file may be a command's in the new one."""
    lines = shown(DiffPreview("run.sh", PEM, PEM.replace("-----BEGIN PRIVATE KEY-----", "set -x")))
    assert f" {KEY_LINE}" in lines


def test_what_a_file_writes_like_a_mask_is_no_mask() -> None:
    assert shown(DiffPreview("x", None, f"{MASK}\n"))[-1] == "+[as written: hidden token, 40 characters]"


def test_a_path_with_a_secret_is_masked() -> None:
    content = str(composed(asked(DiffPreview(f"/srv/{TOKEN}/x", "a", "b"))))
    assert TOKEN not in content
    assert f"--- a/srv/{MASK}/x" in content


def test_look_alikes_in_path_and_lines_are_named_once_and_without_the_diffs_own_signs() -> None:
    seen = present(
        asked(DiffPreview("/etc/p\u0430sswd", "curl \u0430pple.com\n", "\u0440aypal.com\ncurl \u0430pple.com\n"))
    )
    assert [(each.look, each.name) for each in seen.look_alikes] == [
        (Look.MIXED, "p\u0430sswd"),
        (Look.MIXED, "\u0440aypal.com"),
        (Look.MIXED, "\u0430pple.com"),
    ]


def test_a_cut_diff_shows_both_ends_and_the_file_has_all_of_it() -> None:
    new = "".join(f"call({n})\n" for n in range(500)) + "os.system('rm -rf ~/work')\n"
    wanted = asked(DiffPreview("x.py", None, new), attachment=Attachment.WANTED)
    question, content = compose(wanted, mentions=(), other_codes=frozenset())
    assert "    +call(0)\n" in content["body"]
    assert "    +os.system('rm -rf ~/work')\n" in content["body"]
    assert "characters hidden" in content["body"]
    assert content["subject"]["preview_complete"] is False
    assert [offered.printed for offered in question.offered] == ["Allow once", "Reject", "Never allow"]
    added = [line for line in full_text(wanted).split("\n") if line.startswith("+")]
    assert len(added) == 1 + 501


@pytest.mark.parametrize(("old", "new", "sign"), [(None, "+", "+"), ("-", None, "-")])
def test_a_cut_within_a_line_never_hides_the_sign_of_its_end(old: str | None, new: str | None, sign: str) -> None:
    def text(mark: str | None) -> str | None:
        return None if mark is None else "x" + " - y + z" * 1_000 + "\nrm -rf ~/work"

    content = composed(asked(DiffPreview("x", text(old), text(new))))
    first, last = copied(content["formatted_body"])
    assert first.split("\n")[-1].startswith(f"{sign}x - y")
    for line in last.split("\n"):
        assert line.startswith((f"{sign}…", f"{sign}rm", "\\ No newline"))


def test_what_is_kept_of_a_change_is_what_was_asked() -> None:
    part = DiffPreview("x", f"TOKEN={TOKEN}", "\u202e\r\n")
    question, _ = compose(asked(part), mentions=(), other_codes=frozenset())
    assert question.preview == (part,)


def test_many_hostile_changes_take_no_longer_than_one() -> None:
    """What finding diffs may take is shared by all of them."""
    part = DiffPreview("x", "a\n" * 140, "a\nb\n" * 70)
    whole = present(asked(part)).preview[0]
    shared = present(asked(*[part] * 100)).preview[0]
    assert len(str(shared)) > len(str(whole))


def test_nothing_approving_is_offered_of_a_change_that_nobody_can_read_whole() -> None:
    content = composed(asked(DiffPreview("x", None, "x\n" * 100)))
    assert {option["meaning"] for option in content["options"]} == {Meaning.REJECT.value}
