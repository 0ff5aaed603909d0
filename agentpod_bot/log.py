"""How the program logs: structlog and the standard library's loggers through one chain.

A line is one past-tense name and keys. Times are UTC, context variables (a request's id,
say) are on every line below them, tracebacks are structured and have no local variables.
Whatever stands under a key that may hold a secret or a person's text is not written at
all: such a key gets into a call by accident only, and the accident must stay harmless.
"""

from __future__ import annotations

import logging
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, TextIO

import structlog
from structlog.tracebacks import ExceptionDictTransformer

if TYPE_CHECKING:
    from structlog.typing import EventDict, Processor, WrappedLogger

REDACTED = "***"
REDACTED_KEYS = frozenset(
    {
        "access_token",
        "authorization",
        "body",
        "command",
        "formatted_body",
        "password",
        "secret",
        "text",
        "title",
        "token",
    }
)
"""Keys, in any case and with `-` or `_`, whose values are never written, at whatever depth."""
MAX_DEPTH = 8
"""Nothing that is logged on purpose is nested deeper; what is, is left out."""
LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
NIO = "nio"
ALEMBIC = "alembic"
EXCEPTION = "exc_info"
MAX_FRAMES = 30


class Handler(logging.StreamHandler[TextIO]):
    """Our own handler, so that configuring again replaces it and no other."""


def configure(level: str, format: str, stream: TextIO) -> None:  # noqa: A002 - the name of the key in the file
    """Log to `stream` from now on; called again, it takes the place of the earlier call.

    `level` is debug, info, warning or error; `format` is json, console, or auto, which is
    console on a terminal and JSON elsewhere.
    """
    before: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="timestamp"),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *before,
            structlog.stdlib.PositionalArgumentsFormatter(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,  # a cached logger would not notice a later call
    )
    is_terminal = stream.isatty()
    handler = Handler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*before, structlog.stdlib.ExtraAdder(), drop_formatted, shorten_nio],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                redact,
                *rendering(as_json=format == "json" or (format == "auto" and not is_terminal), colours=is_terminal),
            ],
        )
    )
    root = logging.getLogger()
    for earlier in [found for found in root.handlers if isinstance(found, Handler)]:
        root.removeHandler(earlier)
    root.addHandler(handler)
    root.setLevel(LEVELS[level])
    # below warning nio logs whole responses, with the bodies of messages in them
    # and Alembic tells of each thing that it loads or looks at; the store says itself what it changes
    for talkative in (NIO, ALEMBIC):
        logging.getLogger(talkative).setLevel(max(LEVELS[level], logging.WARNING))
    logging.captureWarnings(capture=True)


def rendering(*, as_json: bool, colours: bool) -> tuple[Processor, ...]:
    """The last steps: a line of JSON, or one for a person's eyes. Neither shows local variables."""
    if as_json:
        frames = ExceptionDictTransformer(show_locals=False, max_frames=MAX_FRAMES)
        return structlog.processors.ExceptionRenderer(frames), structlog.processors.JSONRenderer(ensure_ascii=False)
    return (structlog.dev.ConsoleRenderer(colors=colours, exception_formatter=structlog.dev.plain_traceback),)


def redact(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Leave out what must not be written: see `written`. What is raised is left to the last step."""
    return {key: value if key == EXCEPTION else written(key, value, MAX_DEPTH) for key, value in event.items()}


def written(key: object, value: Any, depth: int) -> Any:
    """A value as it may be written, however deep in mappings and lists.

    Of an object only the type: its `repr` may hold anything, a whole request for one.
    """
    if isinstance(key, str) and key.lower().replace("-", "_") in REDACTED_KEYS:
        return REDACTED
    match value:
        case str() | int() | float() | None:
            return value
        case dict() | list() | tuple() | set() | frozenset() if depth == 0:
            return REDACTED
        case dict():
            return {inner: written(inner, item, depth - 1) for inner, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [written(None, item, depth - 1) for item in value]
        case PurePath():
            return str(value)
        case BaseException():
            return f"{type(value).__name__}: {value}"
        case _:
            return f"<{type(value).__name__}>"


def drop_formatted(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Drop what another handler's formatter left on the record: the same words again, and uncut."""
    for key in ("message", "asctime"):  # `extra` cannot hold these: the standard library forbids it
        event.pop(key, None)
    return event


def shorten_nio(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Cut nio's words at the first colon: behind it may stand the part of a room's event that it disliked."""
    name = event.get("logger")
    if isinstance(name, str) and (name == NIO or name.startswith(f"{NIO}.")):
        event["event"] = str(event["event"]).partition(": ")[0]
    return event
