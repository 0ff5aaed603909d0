from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from agentpod_bot.config import document, keys
from agentpod_bot.config.load import load
from agentpod_bot.config.report import written
from agentpod_bot.errors import ConfigurationError

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from agentpod_bot.config.model import Settings

EXAMPLE = Path(__file__).parents[3] / "config.example.yaml"
NAMES = {"clients": "laptop", "routes": "ops"}

KEYS = [
    ((section, NAMES[section], key) if kind.named else (section, key), attribute, field)
    for section, kind in keys.SECTIONS.items()
    for key, (attribute, field) in keys.fields(kind.model).items()
    if not keys.is_secret(field)
]


def comment_above(line: int) -> str:
    """The comment that stands directly above a line (counted from 1), as one text."""
    above = []
    for text in reversed(EXAMPLE.read_text(encoding="utf-8").splitlines()[: line - 1]):
        if not text.strip().startswith("#"):
            break
        above.append(text.strip().removeprefix("#").strip())
    return " ".join(reversed(above))


def test_the_example_has_every_key_in_the_models_order_and_no_other() -> None:
    example = document.read(EXAMPLE)
    assert example.faults == []
    leaves = [
        (section, name, key) if keys.SECTIONS[section].named else (section, name)
        for section, inside in example.root.items()
        for name, value in inside.items()
        for key in (value if keys.SECTIONS[section].named else [None])
    ]
    assert leaves == [at for at, _, _ in KEYS]


@pytest.mark.parametrize(("at", "attribute", "field"), KEYS, ids=[".".join(at) for at, _, _ in KEYS])
def test_the_comment_of_each_key_says_its_true_default(at: tuple[str, ...], attribute: str, field: FieldInfo) -> None:
    comment = comment_above(document.read(EXAMPLE).lines[at])
    if field.is_required():
        assert "(required" in comment
        return
    default = written(at, field.default).replace('"', "")
    assert re.search(rf"\(default: {re.escape(default)}[,;)\s]", comment), (attribute, default, comment)


def test_the_example_gives_each_key_its_default_where_it_has_one(tmp_path: Path) -> None:
    settings = adapted(tmp_path)
    for at, attribute, field in KEYS:
        if not field.is_required() and not attribute.endswith("_file"):
            section = getattr(settings, at[0])
            part = section[at[1]] if keys.SECTIONS[at[0]].named else section
            assert getattr(part, attribute) == field.default, at


def adapted(folder: Path) -> Settings:
    """The settings of the example once a person has put their own values into it."""
    text = EXAMPLE.read_text(encoding="utf-8").replace("example.org", "hs.test").replace("CHANGE_ME", "ops")
    for name in ("access_token", "tokens/laptop"):
        secret = folder / name.replace("/", "-")
        secret.write_text(f"made-up-{name}-for-a-test")
        secret.chmod(0o600)
        text = text.replace(f"/etc/agentpod-bot/{name}", str(secret))
    path = folder / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return load(path, {}).settings


def test_the_example_as_it_stands_is_refused_with_each_placeholder_named() -> None:
    with pytest.raises(ConfigurationError) as refused:
        load(EXAMPLE, {})
    assert [line.partition(": ")[0] for line in refused.value.problems if "is a placeholder" in line] == [
        "homeserver.url",
        "homeserver.user_id",
        "routes.ops.room",
        "routes.ops.approvers[0]",
    ]
