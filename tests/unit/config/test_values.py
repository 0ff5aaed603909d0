from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentpod_bot.config import values


@pytest.mark.parametrize(
    ("text", "milliseconds"), [("1s", 1_000), ("30m", 1_800_000), ("24h", 86_400_000), ("7d", 604_800_000)]
)
def test_a_duration_is_a_whole_number_with_a_unit(text: str, milliseconds: int) -> None:
    assert values.duration_ms(text) == milliseconds


@pytest.mark.parametrize(
    "text", ["", "30", "m", "1.5h", "-1s", "30 m", "1h30m", "30M", "1w", "٣s", "1s\n", "9" * 20 + "s"]
)
def test_what_is_not_plainly_a_duration_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration"):
        values.duration_ms(text)


@given(st.integers(min_value=1, max_value=10_000_000))
def test_a_written_duration_reads_back_as_itself(seconds: int) -> None:
    assert values.duration_ms(values.duration_text(seconds * 1_000)) == seconds * 1_000


@pytest.mark.parametrize("text", ["24h", "7d", "30m", "90s", "48h"])
def test_a_duration_is_written_as_people_write_it(text: str) -> None:
    assert values.duration_text(values.duration_ms(text)) == {"48h": "2d"}.get(text, text)


@pytest.mark.parametrize(
    ("text", "size"), [("1B", 1), ("64KiB", 65_536), ("1MiB", 1_048_576), ("1 GiB", 1_073_741_824)]
)
def test_a_size_is_a_whole_number_with_a_binary_unit(text: str, size: int) -> None:
    assert values.size_bytes(text) == size
    assert values.size_bytes(values.size_text(size)) == size


@pytest.mark.parametrize("text", ["", "1", "1MB", "1M", "1mib", "0.5MiB", "-1KiB"])
def test_what_is_not_plainly_a_size_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="is no size"):
        values.size_bytes(text)


@pytest.mark.parametrize(
    ("text", "host", "port", "loopback"),
    [
        ("127.0.0.1:8470", "127.0.0.1", 8470, True),
        ("127.9.9.9:1", "127.9.9.9", 1, True),
        ("[::1]:8470", "::1", 8470, True),
        ("localhost:8470", "localhost", 8470, True),
        ("0.0.0.0:8470", "0.0.0.0", 8470, False),  # noqa: S104 - the case that must count as remote
        ("[::]:8470", "::", 8470, False),
        ("[::ffff:127.0.0.1]:8470", "::ffff:7f00:1", 8470, False),
        ("192.168.1.2:65535", "192.168.1.2", 65535, False),
        ("bot.hs.test:8470", "bot.hs.test", 8470, False),
        ("localhost.hs.test:8470", "localhost.hs.test", 8470, False),
    ],
)
def test_an_address_is_read_and_known_as_local_or_remote(text: str, host: str, port: int, loopback: bool) -> None:
    found = values.listen(text)
    assert (found.host, found.port, found.is_loopback) == (host, port, loopback)
    assert values.listen(str(found)) == found


@pytest.mark.parametrize(
    "text",
    [
        "",
        "8470",
        ":8470",
        "127.0.0.1",
        "127.0.0.1:",
        "127.0.0.1:0",
        "127.0.0.1:65536",
        "127.0.0.1:84 70",
        "::1:8470",
        "[::1]",
        "[nonsense]:8470",
        "256.0.0.1:8470",
        "127.1:8470",
        "http://127.0.0.1:8470",
        "a b:1",
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"address|port|host name"):
        values.listen(text)


@pytest.mark.parametrize(
    "text",
    [
        "@owner:hs.test",
        "@owner:hs.test:8448",
        "@Owner.Of-All_things=/+:hs.test",
        "@we!rd\"'`{|}~:hs.test",
        "@a:127.0.0.1",
        "@a:[::1]:8448",
        "@a:localhost",
    ],
)
def test_a_user_id_is_kept_exactly_as_written(text: str) -> None:
    assert values.user_id(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "*",
        "@*",
        "@*:hs.test",
        "owner",
        "@owner",
        "owner:hs.test",
        "@:hs.test",
        "@owner:",
        "@owner: hs.test",
        " @owner:hs.test",
        "@owner:hs.test ",
        "@owner:hs.test\n",
        "@ow ner:hs.test",
        "@оwner:hs.test",
        "@own\u200ber:hs.test",
        "@owner:hs_test",
        "@owner:hs.test:port",
        "@owner:hs.test:1:2",
        "@owner:[::1",
        "@owner:[:::1]",
        "@" + "a" * 250 + ":hs.test",
    ],
)
def test_what_is_no_exact_user_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"user id|pattern"):
        values.user_id(text)


@pytest.mark.parametrize("text", ["!abc:hs.test", "!abc", "!" + "A" * 43, "#ops:hs.test", "#日本:hs.test:8448"])
def test_a_room_is_an_id_with_or_without_a_server_or_an_alias(text: str) -> None:
    assert values.room(text) == text


@pytest.mark.parametrize(
    "text", ["", "ops", "!", "#ops", "#", "!:hs.test", "!a b", "!a:", "!a:b c", "@a:hs.test", "!a\n", "!" + "a" * 255]
)
def test_what_can_be_no_room_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no room"):
        values.room(text)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("https://hs.test", "https://hs.test"),
        ("https://hs.test/", "https://hs.test"),
        ("http://127.0.0.1:8008/a", "http://127.0.0.1:8008/a"),
    ],
)
def test_a_homeserver_url_has_no_slash_at_its_end(text: str, url: str) -> None:
    assert values.homeserver_url(text) == url


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hs.test",
        "ftp://hs.test",
        "https://",
        "https://hs.test:99999",
        "https://hs.test?a=b",
        "https://hs.test/#a",
        "https://h s.test",
        "https://[::1",
    ],
)
def test_what_is_no_homeserver_url_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no URL|has a query"):
        values.homeserver_url(text)


@pytest.mark.parametrize(
    "text", ["https://matrix.example.org", "@pod:EXAMPLE.com", "!CHANGE_ME", "#ops:example.net:8448", "change_me"]
)
def test_what_the_example_file_asks_to_change_is_a_placeholder(text: str) -> None:
    assert values.is_placeholder(text)


@pytest.mark.parametrize(
    "text",
    ["https://notexample.org", "@pod:example.org.test", "@pod:my-example.org", "@example:hs.test", "/etc/example.org"],
)
def test_what_merely_resembles_a_placeholder_is_none(text: str) -> None:
    assert values.is_placeholder(text) is (text == "/etc/example.org")


@pytest.mark.parametrize("text", ["laptop", "Laptop-2", "a_b-c", "0"])
def test_a_name_is_letters_and_digits_with_single_dashes(text: str) -> None:
    assert values.name(text) == text


@pytest.mark.parametrize("text", ["", "a__b", "_a", "a-", "a.b", "a b", "ä", "a" * 65])
def test_a_name_that_a_variable_cannot_write_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no name"):
        values.name(text)


@pytest.mark.parametrize(("text", "per_ms"), [("1/s", 1_000), ("60/min", 60_000), ("500/h", 3_600_000)])
def test_a_rate_is_so_many_in_a_unit_of_time_and_is_written_as_it_was_read(text: str, per_ms: int) -> None:
    assert (str(values.rate(text)), values.rate(text).per_ms) == (text, per_ms)


@pytest.mark.parametrize("text", ["", "60", "60/", "/min", "60 / min", "60/m", "60/day", "-1/s", "1.5/s", "0/s", "٣/s"])
def test_what_is_not_plainly_a_rate_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no rate|lets nothing through"):
        values.rate(text)
