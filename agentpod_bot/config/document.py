"""Reading the YAML file: plain values, the line of each key, and no surprises.

Scalars follow the core schema of YAML 1.2, not the 1.1 of PyYAML's own loaders: `off`,
`no` and `1:30` are texts, only `true` and `false` are truth values. Keys are always
texts. A key that stands twice in one mapping is a fault: the one below would win, and
whoever reads the one above would never know.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml

from agentpod_bot.config.fault import Fault, Path, dotted
from agentpod_bot.config.source import InFile
from agentpod_bot.errors import ConfigurationError

if TYPE_CHECKING:
    import pathlib

MAX_BYTES = 1024 * 1024
MAX_NODES = 20_000
"""More values than any real file has; a few aliases of aliases can unfold into billions."""

STANDARD = "tag:yaml.org,2002:"
TAGS = frozenset(
    STANDARD + name for name in ("map", "seq", "str", "int", "float", "bool", "null", "timestamp", "value", "merge")
)
"""What PyYAML gives to values by itself; any other tag was written."""

NULL = re.compile(r"~|null|Null|NULL|")
TRUE = re.compile(r"true|True|TRUE")
FALSE = re.compile(r"false|False|FALSE")
INTEGER = re.compile(r"[-+]?[0-9]{1,18}")
FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]{1,3})?")


@dataclass(slots=True)
class Document:
    """What a file says. `lines` has the line of every key and list item, counted from 1."""

    path: pathlib.Path
    root: dict[str, Any]
    lines: dict[Path, int] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    def source(self, at: Path) -> InFile | None:
        """Where a value stands, or the nearest mapping or list around it; None for what is not in the file."""
        line = self.lines.get(at)
        return None if line is None else InFile(self.path, line)


def read(path: pathlib.Path) -> Document:
    """Read a file. `ConfigurationError` where it cannot be read, is no YAML or no mapping.

    Smaller faults (a key given twice, a tag) stand in the document, to be reported with all others.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: there is no such file") from None
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from error
    if len(raw) > MAX_BYTES:
        raise ConfigurationError(f"{path}: is larger than {MAX_BYTES} bytes")
    try:
        return parse(raw.decode("utf-8-sig"), path)
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: is not UTF-8 at byte {error.start}") from None


def parse(text: str, path: pathlib.Path) -> Document:
    """Read the text of a file; `path` only names it."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        raise ConfigurationError(f"{path}: {marked(error)}") from None
    except yaml.YAMLError as error:  # the reader's own error, about a character that YAML forbids
        raise ConfigurationError(f"{path}: has a character that YAML does not allow") from error
    except RecursionError:
        raise ConfigurationError(f"{path}: is nested too deeply") from None
    document = Document(path, {})
    match node:
        case None:
            raise ConfigurationError(f"{path}: is empty")
        case yaml.MappingNode():
            document.root = Reader(document).mapping(node, ())
            return document
        case _:
            raise ConfigurationError(f"{path}: is no mapping of sections (homeserver, http, clients, …)")


def marked(error: yaml.MarkedYAMLError) -> str:
    """What is wrong with the YAML, where, and what to do; never the line itself, which may hold a secret."""
    mark = error.problem_mark or error.context_mark
    where = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
    problem = error.problem or error.context or "is no YAML"
    if problem == "but found another document":
        return f"{where}another document begins here; the configuration is one, with one --- at most, at its beginning"
    hint = "; a value that begins with @ needs quotes" if "'@'" in problem else ""
    return f"{where}{problem.splitlines()[0]}{hint}"


class Reader:
    """Turns the nodes of one file into plain values, noting lines and faults in its document."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._left = MAX_NODES
        self._open: set[int] = set()

    def mapping(self, node: yaml.MappingNode, at: Path) -> dict[str, Any]:
        """A mapping with texts as keys; of a key that stands twice the first is kept, and it is a fault."""
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self._fault(at, "has a key that is no plain text", line)
                continue
            key = str(key_node.value)
            path = (*at, key)
            if key in found:
                self._fault(path, f"is given twice; first on line {self._document.lines[path]}", line)
                continue
            self._document.lines[path] = line
            found[key] = self._value(value_node, path)
        return found

    def _value(self, node: yaml.Node, at: Path) -> Any:
        self._left -= 1
        if self._left < 0 or id(node) in self._open:
            raise ConfigurationError(f"{self._document.path}: {dotted(at)}: its aliases unfold without end")
        if node.tag not in TAGS:
            # `room: !abc:server` is YAML for "nothing, of the type abc:server"
            line = node.start_mark.line + 1
            self._fault(at, "has a tag instead of a value; what begins with ! needs quotes", line)
            return node.tag
        match node:
            case yaml.ScalarNode():
                is_text = node.style is not None or node.tag == f"{STANDARD}str"
                return str(node.value) if is_text else plain(str(node.value))
            case yaml.MappingNode() | yaml.SequenceNode():
                self._open.add(id(node))
                value = self.mapping(node, at) if isinstance(node, yaml.MappingNode) else self._list(node, at)
                self._open.discard(id(node))
                return value
            case _:
                raise TypeError(f"PyYAML composes no {type(node).__name__}")

    def _list(self, node: yaml.SequenceNode, at: Path) -> list[Any]:
        items = []
        for index, item in enumerate(node.value):
            self._document.lines[*at, index] = item.start_mark.line + 1
            items.append(self._value(item, (*at, index)))
        return items

    def _fault(self, at: Path, reason: str, line: int) -> None:
        self._document.faults.append(Fault(at, reason, InFile(self._document.path, line)))


def plain(text: str) -> str | int | float | bool | None:
    """An unquoted scalar by the core schema of YAML 1.2, less its octal, hexadecimal and infinite numbers."""
    if NULL.fullmatch(text):
        return None
    if TRUE.fullmatch(text):
        return True
    if FALSE.fullmatch(text):
        return False
    if INTEGER.fullmatch(text):
        return int(text)
    if FLOAT.fullmatch(text):
        return float(text)
    return text
