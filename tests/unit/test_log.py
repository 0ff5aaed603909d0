from __future__ import annotations

import io
import json
import logging
import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import structlog
from pydantic import SecretStr

from agentpod_bot import log

if TYPE_CHECKING:
    from collections.abc import Iterator

LEAK = "what-nobody-may-read"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root, nio = logging.getLogger(), logging.getLogger("nio")
    levels = root.level, nio.level
    yield
    for handler in [found for found in root.handlers if isinstance(found, log.Handler)]:
        root.removeHandler(handler)
    root.setLevel(levels[0])
    nio.setLevel(levels[1])
    logging.captureWarnings(capture=False)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def configured(level: str = "info", format: str = "json") -> io.StringIO:  # noqa: A002 - as in the module
    stream = io.StringIO()
    log.configure(level, format, stream)
    return stream


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def only(stream: io.StringIO) -> dict[str, Any]:
    (line,) = lines(stream)
    return line


def test_a_line_is_json_with_its_name_level_logger_and_time_in_utc() -> None:
    stream = configured()
    structlog.get_logger("agentpod_bot.broker").info("permission_request_decided", via="number", latency_ms=12)
    line = only(stream)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", line.pop("timestamp"))
    assert line == {
        "event": "permission_request_decided",
        "level": "info",
        "logger": "agentpod_bot.broker",
        "via": "number",
        "latency_ms": 12,
    }


@pytest.mark.parametrize("name", ["aiohttp.access", "asyncio"])
def test_the_standard_librarys_loggers_go_through_the_same_chain(name: str) -> None:
    stream = configured()
    structlog.contextvars.bind_contextvars(request_id="r1")
    logging.getLogger(name).info("took %d ms", 12, extra={"password": LEAK})
    line = only(stream)
    assert (line["event"], line["logger"], line["level"], line["request_id"]) == ("took 12 ms", name, "info", "r1")
    assert line["password"] == "***"
    assert line["timestamp"].endswith("Z")


@pytest.mark.parametrize("name", ["alembic.runtime.migration", "nio.rooms"])
def test_loggers_that_talk_too_much_are_heard_from_warning_on(name: str) -> None:
    stream = configured()
    logging.getLogger(name).info("looked at something")
    logging.getLogger(name).warning("found something")
    assert only(stream)["event"] == "found something"


def test_context_variables_are_on_every_line() -> None:
    stream = configured()
    with structlog.contextvars.bound_contextvars(request_id="r1", token=LEAK):
        structlog.get_logger("a").info("happened")
    assert only(stream)["request_id"] == "r1"
    assert LEAK not in stream.getvalue()


@pytest.mark.parametrize(
    "key",
    [
        "token",
        "access_token",
        "password",
        "authorization",
        "secret",
        "body",
        "formatted_body",
        "text",
        "command",
        "title",
        "Authorization",
        "ACCESS-TOKEN",
    ],
)
@pytest.mark.parametrize("format", ["json", "console"])
@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
def test_a_value_under_a_key_that_may_hold_a_secret_is_never_written(key: str, format: str, level: str) -> None:  # noqa: A002 - as above
    stream = configured("debug", format)
    logger = structlog.get_logger("a")
    getattr(logger, level)("happened", **{key: LEAK})
    getattr(logger, level)("happened", content={"m.new_content": {key: LEAK}}, events=[{"content": {key: [LEAK]}}])
    logging.getLogger("b").error("happened", extra={key: LEAK})
    assert LEAK not in stream.getvalue()
    assert stream.getvalue().count("***") == 4


def test_an_object_is_written_as_its_type_only() -> None:
    @dataclass
    class Request:
        title: str = LEAK

    stream = configured()
    structlog.get_logger("a").info("happened", request=Request(), raw=LEAK.encode(), token_held=SecretStr(LEAK))
    assert LEAK not in stream.getvalue()
    assert only(stream)["request"] == "<Request>"


def test_plain_values_are_written_as_they_are() -> None:
    stream = configured()
    structlog.get_logger("a").info(
        "happened", path=Path("/a"), ids=("x", "y"), n=None, on=True, error=ValueError("why")
    )
    line = only(stream)
    assert (line["path"], line["ids"], line["n"], line["on"]) == ("/a", ["x", "y"], None, True)
    assert line["error"] == "ValueError: why"


def test_what_is_nested_too_deeply_is_left_out() -> None:
    nested: list[Any] = []
    nested.append(nested)
    stream = configured()
    structlog.get_logger("a").info("happened", nested=nested)
    assert "***" in stream.getvalue()


@pytest.mark.parametrize("format", ["json", "console"])
def test_a_traceback_has_no_local_variables(format: str) -> None:  # noqa: A002 - as above
    stream = configured(format=format)
    local = LEAK
    try:
        int(f"{len(local)} characters")
    except ValueError:
        structlog.get_logger("a").exception("failed")
        logging.getLogger("asyncio").exception("failed")
    assert LEAK not in stream.getvalue()
    assert stream.getvalue().count("test_a_traceback_has_no_local_variables") == 2


def test_a_traceback_in_json_is_structured() -> None:
    def failing() -> None:
        try:
            {}["because"]
        except KeyError as because:
            raise ValueError("why") from because

    stream = configured()
    try:
        failing()
    except ValueError:
        structlog.get_logger("a").exception("failed")
    raised, cause = only(stream)["exception"]
    assert (raised["exc_type"], raised["exc_value"], cause["exc_type"]) == ("ValueError", "why", "KeyError")
    assert raised["frames"][-1]["name"] == "failing"


@pytest.mark.parametrize(("level", "seen"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_only_the_level_and_above_are_written(level: str, seen: int) -> None:
    stream = configured(level)
    for each in ("debug", "info", "warning", "error"):
        getattr(structlog.get_logger("a"), each)("happened")
        getattr(logging.getLogger("b"), each)("happened")
    assert len(lines(stream)) == 2 * seen


def test_nio_is_heard_from_warning_up_only_and_without_the_events_it_complains_of() -> None:
    stream = configured("debug")
    nio = logging.getLogger("nio.responses")
    nio.debug("whole response %s", LEAK)
    nio.info("whole response %s", LEAK)
    nio.warning("Error validating response: %s is not of type object", LEAK)
    assert only(stream)["event"] == "Error validating response"
    assert LEAK not in stream.getvalue()


def test_a_program_may_want_to_hear_errors_only_also_of_nio() -> None:
    stream = configured("error")
    logging.getLogger("nio.rooms").warning("happened")
    assert stream.getvalue() == ""


def test_auto_is_json_unless_on_a_terminal() -> None:
    structured = configured(format="auto")
    structlog.get_logger("a").info("happened")
    assert only(structured)["event"] == "happened"
    terminal = Terminal()
    log.configure("info", "auto", terminal)
    structlog.get_logger("a").info("happened")
    assert "happened" in terminal.getvalue()
    assert not terminal.getvalue().startswith("{")


def test_json_is_json_also_on_a_terminal() -> None:
    terminal = Terminal()
    log.configure("info", "json", terminal)
    structlog.get_logger("a").info("happened")
    assert json.loads(terminal.getvalue())["event"] == "happened"


def test_configured_again_a_logger_that_was_used_before_follows() -> None:
    first = configured()
    logger = structlog.get_logger("a")
    logger.info("happened")
    second = configured("debug")
    logger.debug("happened_later")
    assert only(first)["event"] == "happened"
    assert only(second)["event"] == "happened_later"


def test_other_peoples_handlers_stay() -> None:
    theirs = logging.NullHandler()
    logging.getLogger().addHandler(theirs)
    configured()
    configured()
    assert theirs in logging.getLogger().handlers
    assert sum(isinstance(handler, log.Handler) for handler in logging.getLogger().handlers) == 1
    logging.getLogger().removeHandler(theirs)


def test_a_python_warning_becomes_a_line() -> None:
    stream = configured()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("something is old", DeprecationWarning, stacklevel=1)
    assert only(stream)["logger"] == "py.warnings"
    assert "something is old" in only(stream)["event"]
