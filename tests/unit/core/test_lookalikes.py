from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentpod_bot.core.lookalikes import MAX_FOUND, Look, LookAlike, warnings

BOTH = ("Cyrillic", "Latin")


@pytest.mark.parametrize(
    ("text", "name", "scripts"),
    [
        ("curl https://\u0430pple.com/x | sh", "\u0430pple.com", BOTH),
        ("https://user:p@\u0430pple.com:80/a", "\u0430pple.com", BOTH),
        ("git clone git@git\u04bbub.com:a/b", "git\u04bbub.com", BOTH),
        ("see g\u03bf\u03bfgle.com", "g\u03bf\u03bfgle.com", ("Greek", "Latin")),
        ("cat /etc/\u0440\u0430sswd", "\u0440\u0430sswd", BOTH),
        ("C:\\Us\u0435rs\\x", "Us\u0435rs", BOTH),
        ("host:~/.ss\u04bb/x", ".ss\u04bb", BOTH),
    ],
)
def test_letters_of_several_scripts_in_one_word_are_named(text: str, name: str, scripts: tuple[str, ...]) -> None:
    assert warnings(text) == (LookAlike(Look.MIXED, name, scripts=scripts),)


@pytest.mark.parametrize(
    ("text", "name", "other"),
    [
        (
            "https://\u0430\u0440\u0440\u04cf\u0435.com",
            "\u0430\u0440\u0440\u04cf\u0435.com",
            "apple.com",
        ),
        ("https://\u0440\u0430\u0443\u0440\u0430/", "\u0440\u0430\u0443\u0440\u0430", "paypa"),
        ("\u0261oogle.com", "\u0261oogle.com", "google.com"),
        ("\uff41pple.com", "\uff41pple.com", "apple.com"),
        ("/opt/\u0441\u043e\u0440/x", "\u0441\u043e\u0440", "cop"),
        ("https://example.com\u2215evil.com", "example.com\u2215evil.com", "example.com/evil.com"),
    ],
)
def test_what_reads_like_another_name_is_shown_with_it(text: str, name: str, other: str) -> None:
    assert warnings(text) == (LookAlike(Look.IMITATES, name, other),)


def test_punycode_is_decoded_and_what_it_stands_for_is_looked_at_too() -> None:
    assert warnings("https://xn--pple-43d.com/") == (
        LookAlike(Look.PUNYCODE, "xn--pple-43d.com", "\u0430pple.com"),
        LookAlike(Look.MIXED, "\u0430pple.com", scripts=BOTH),
    )
    assert warnings("XN--e1afmkfd.xn--p1ai") == (LookAlike(Look.PUNYCODE, "XN--e1afmkfd.xn--p1ai", "пример.рф"),)
    for broken in ("xn--99999999.com", f"xn--{'a' * 80}.com"):
        assert warnings(broken) == (LookAlike(Look.NO_PUNYCODE, broken),)


@pytest.mark.parametrize(
    "text",
    [
        "https://пример.рф/путь/файл.txt",
        "例え.jp と 例えabc.jp",
        "https://한국.kr παράδειγμα.gr नमूना.भारत הדוגמה.com",
        "München.de straße/x naïve/😀.png",
        "docs/Русский/README.md отчёт.txt /home/user/Документы/сор",
        "src/Δt.py λ_max.csv",
        "Готово.Done т.е. так — e.g. “foo.txt” – bar/baz…",
        "はい／いいえ 5×3/2 a/b → c/d",
        "bun test apps/hub owner@example.org",
    ],
)
def test_names_in_a_script_of_their_own_are_nothing_to_warn_of(text: str) -> None:
    assert warnings(text) == ()


def test_each_is_said_once_and_there_is_an_end() -> None:
    assert len(warnings("\u0430pple.com \u0430pple.com")) == 1
    for many in (" ".join(f"\u0430pple{number}.com" for number in range(500)), "\u0444" * 70_000 + ".\u0430b"):
        found = warnings(many)
        assert len(found) <= MAX_FOUND
        assert found[-1].look is Look.UNREAD


@given(st.text(st.characters() | st.sampled_from("./:@\\-xn--\u0430e\u03bf\uff41\u2215 "), max_size=60))
def test_every_text_is_read_and_every_name_stands_in_it_or_is_decoded_from_it(text: str) -> None:
    found = warnings(text)
    assert len(found) <= MAX_FOUND
    decoded = {each.other for each in found if each.look is Look.PUNYCODE}
    assert all(each.name in text or each.name in decoded for each in found)


@given(st.text(st.characters(max_codepoint=127)).filter(lambda text: "xn--" not in text.lower()))
def test_plain_ascii_is_never_warned_of(text: str) -> None:
    assert warnings(text) == ()


@pytest.mark.parametrize(
    "piece", ["\u0430", "\u0430.", "\u0430/", "xn--", "xn--a.\u00e9", "\u0430:", "\u2215a", "@\u0430"]
)
def test_a_long_text_takes_time_in_proportion(piece: str) -> None:
    started = time.process_time()
    warnings(piece * (200_000 // len(piece)))
    assert time.process_time() - started < 2
