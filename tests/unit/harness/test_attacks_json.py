"""What a body may cost before anything of it is known."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest

from agentpod_bot.errors import Invalid, MalformedJson
from agentpod_bot.harness import strict_json
from agentpod_bot.harness.strict_json import read

EMOJI = '"\\ud83d\\ude00"'
"""A whole pair of escaped surrogates, which is right; only where one is alone must its place be looked for."""
ALONE = '"\\ud83d"'


@pytest.mark.parametrize("depth", [1, 50, 150])
def test_a_body_with_an_escaped_emoji_is_not_walked_through(depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a million values are a second of the one thread that answers everybody."""

    def walked(_content: Any) -> NoReturn:
        raise AssertionError("nothing is wrong with it, and so there is no place to look for")

    monkeypatch.setattr(strict_json, "_place_of_surrogate", walked)
    assert read(nested(depth, EMOJI))


@pytest.mark.parametrize("depth", [1, 50, 150])
def test_the_place_of_a_lone_surrogate_is_spelt_out_once_however_many_values_there_are(
    depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path for each value would make a body of a mebibyte into hundreds."""
    spelt: list[Any] = []
    path = strict_json._path

    def counted(place: Any) -> strict_json.Loc:
        spelt.append(place)
        return path(place)

    monkeypatch.setattr(strict_json, "_path", counted)
    with pytest.raises(Invalid) as refused:
        read(nested(depth, ALONE))
    assert refused.value.loc == ("x", *[0] * (depth - 1), 2)
    (place,) = spelt
    length = 0
    while place is not None:
        assert len(place) == 2  # the place around it, and one step
        place, length = place[0], length + 1
    assert length == depth + 1


def test_a_lone_surrogate_in_a_key_has_the_place_of_its_object() -> None:
    with pytest.raises(Invalid) as refused:
        read(f'{{"x": [{{{ALONE}: 1}}]}}'.encode())
    assert refused.value.loc == ("x", 0)


@pytest.mark.parametrize("depth", [201, 300, 900, 980, 5_000])
def test_a_body_that_could_be_read_here_and_not_everywhere_is_nested_too_deeply(depth: int) -> None:
    assert read(b'{"x":' + b"[" * 199 + b"]" * 199 + b"}")
    for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
        with pytest.raises(MalformedJson, match="nested too deeply"):
            read(b'{"x":' + opening * (depth - 1) + b"1" + closing * (depth - 1) + b"}")


def test_what_can_be_read_but_not_written_again_is_nested_too_deeply(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_deep(*_: Any, **__: Any) -> NoReturn:
        raise RecursionError

    monkeypatch.setattr("json.dumps", too_deep)
    with pytest.raises(MalformedJson, match="nested too deeply"):
        read(nested(1, EMOJI))


def nested(depth: int, odd: str) -> bytes:
    """A thousand values, and an odd one, in so many lists."""
    items = ",".join(["0", EMOJI, odd, *["0"] * 1_000])
    return f'{{"x":{"[" * depth}{items}{"]" * depth}}}'.encode()
