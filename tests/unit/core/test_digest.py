from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest

from agentpod_bot.core.digest import content_key, digest
from agentpod_bot.core.ids import OptionId, RequestId, RouteName
from agentpod_bot.core.model import DiffPreview, FieldPreview, Meaning, Option, PermissionRequest, TextPreview
from agentpod_bot.errors import Invalid
from tests.examples import ALLOW, REJECT, request

SALT = "0f" * 16
ASKED = request(
    title='Fran\u00e7ais "q" \\ \n\u001b \u202e \U0001f600',
    tool_kind=None,
    options=(ALLOW, Option(OptionId("x"), "", Meaning.CHOOSE, None)),
    preview=(
        FieldPreview("Where", "apps/hub"),
        TextPreview("Command", "echo\t1\r\n"),
        DiffPreview("a.py", None, "x = '\u202e'\r\n"),
    ),
)


def digest_of(asked: PermissionRequest, **changes: Any) -> str:
    return digest(asked, **({"request_id": RequestId("r:1"), "revision": 1, "salt": SALT} | changes))


def test_the_digest_is_over_canonical_json_of_exactly_the_nine_fields() -> None:
    fields = {
        "schema": "harness-permission/v1",
        "id": "r:1",
        "revision": 1,
        "session_id": "acps_3f0c",
        "title": ASKED.title,
        "tool_kind": None,
        "options": [
            {"id": "allow_once", "label": "Allow once", "meaning": "approve", "scope": "once"},
            {"id": "x", "label": "", "meaning": "choose", "scope": None},
        ],
        "preview": [
            {"type": "field", "label": "Where", "value": "apps/hub"},
            {"type": "text", "label": "Command", "text": "echo\t1\r\n"},
            {"type": "diff", "path": "a.py", "old_text": None, "new_text": "x = '\u202e'\r\n"},
        ],
        "salt": SALT,
    }
    # For names in ASCII and no floats, RFC 8785 is what the standard library writes like this.
    canonical = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert digest_of(ASKED) == hashlib.sha256(canonical.encode()).hexdigest()


@pytest.mark.parametrize(
    "changes",
    [
        {"title": "Run the test suite "},
        {"tool_kind": "execute"},
        {"options": (ALLOW,)},
        {"options": (REJECT, ALLOW)},
        {"preview": ()},
        {"preview": (*ASKED.preview[:2], DiffPreview("a.py", "", "x = '\u202e'\r\n"))},
        {"preview": (*ASKED.preview[:2], DiffPreview("a.py", None, "x = '\u202e'\n"))},
        {"session_id": "other"},
    ],
)
def test_whatever_is_asked_differently_has_another_digest_and_another_key(changes: dict[str, Any]) -> None:
    asked = request(options=(ALLOW, REJECT))
    other = replace(asked, **changes)
    assert digest_of(other) != digest_of(asked)
    assert content_key(other, RouteName("ops")) != content_key(asked, RouteName("ops"))


@pytest.mark.parametrize("changes", [{"request_id": RequestId("r:2")}, {"revision": 2}, {"salt": "00" * 16}])
def test_the_digest_also_binds_id_revision_and_salt(changes: dict[str, Any]) -> None:
    assert digest_of(ASKED, **changes) != digest_of(ASKED)


@pytest.mark.parametrize("changes", [{"expires_at_ms": 1}, {"ttl_ms": 1}, {"supersede": True}, {"raw": b"x"}])
def test_deadlines_are_no_content(changes: dict[str, Any]) -> None:
    assert content_key(replace(ASKED, **changes), RouteName("ops")) == content_key(ASKED, RouteName("ops"))


def test_another_route_is_other_content() -> None:
    assert content_key(ASKED, RouteName("ops")) != content_key(ASKED, RouteName("dev"))


def test_a_lone_surrogate_is_refused_and_not_replaced() -> None:
    with pytest.raises(Invalid):
        digest_of(request(title="\ud800"))


def test_an_option_without_a_scope_is_another_option() -> None:
    unscoped = Option(ALLOW.option_id, ALLOW.label, ALLOW.meaning, None)
    assert digest_of(request(options=(unscoped,))) != digest_of(request(options=(ALLOW,)))
