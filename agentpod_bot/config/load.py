"""Reading the configuration: one YAML file, overrides from the environment, secrets from elsewhere.

This is done by hand rather than with pydantic-settings, which merges its sources before
it validates: it could no longer say which line or which variable gave a value, it passes
over variables that it does not know, and it would read a secret out of the YAML file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from agentpod_bot.config import consistency, credentials, document, environment, keys, values
from agentpod_bot.config.credentials import MIN_CHARACTERS as SECRET_CHARACTERS
from agentpod_bot.config.fault import Fault, dotted, nearest, shown
from agentpod_bot.config.model import Section, Settings, Written, crypto_folder, listen_unless_socket
from agentpod_bot.config.source import Default, Source
from agentpod_bot.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pydantic_core import ErrorDetails

    from agentpod_bot.config import fault

HERE = Path("config.yaml")
SYSTEM = Path("/etc/agentpod-bot/config.yaml")


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings, the file, and for every value (by the dotted path of its key) where it came from."""

    settings: Settings
    path: Path
    sources: Mapping[str, Source]


def load(path: Path | None, environ: Mapping[str, str]) -> Loaded:
    """Read and check the whole configuration; the file's own secrets are opened too.

    Raises `ConfigurationError` with one line for each fault, all of them at once.
    """
    return Loading(find(path, environ), environ).loaded()


def store_path(path: Path | None, environ: Mapping[str, str]) -> Path:
    """Where the store is, for commands that need nothing else: only what is wrong with that is a fault.

    No secret is looked for, for a backup must not wait until a token is there again. Raises
    `ConfigurationError`.
    """
    return Loading(find(path, environ), environ).store_path()


def keys_folder(path: Path | None, environ: Mapping[str, str]) -> Path:
    """Where the keys of the bot's device are, or would be; likewise."""
    file = find(path, environ)
    named: Path | None = Loading(file, environ).only("e2e")["store"]
    return crypto_folder(store_path(file, environ), named)


def find(path: Path | None, environ: Mapping[str, str]) -> Path:
    """The configuration file: as given, else `$AGENTPOD_BOT_CONFIG`, else here, else the system's."""
    if path is not None:
        return path
    if named := environ.get(environment.CONFIG):
        return Path(named)
    for usual in (HERE, SYSTEM):
        if usual.exists():
            return usual
    raise ConfigurationError(
        f"there is no configuration file: neither --config nor {environment.CONFIG} names one, "
        f"and neither {HERE} nor {SYSTEM} exists"
    )


@dataclass(slots=True)
class Partial:
    """A section as written (`raw`, by key), and what could be read of it (`read`, by attribute).

    `broken` where it is no section at all, so that nothing more is said about it.
    """

    at: fault.Path
    model: type[Section]
    raw: dict[str, Any] = field(default_factory=dict)
    read: dict[str, Any] = field(default_factory=dict)
    broken: bool = False


class Loading:
    """One reading of the configuration: what was found so far, and every fault."""

    def __init__(self, path: Path, environ: Mapping[str, str]) -> None:
        self._path = path
        self._file = document.read(path)
        self._context = Written(path.absolute().parent)
        self._places = credentials.Places.of(self._context.folder, environ)
        self._faults = list(self._file.faults)
        self._secrets: dict[fault.Path, Source] = {}
        self._overrides: dict[fault.Path, environment.Override] = {}
        self._parts = {part.at: part for part in self._written()}
        names = {
            section: tuple(str(at[1]) for at in self._parts if at[0] == section)
            for section, kind in keys.SECTIONS.items()
            if kind.named
        }
        self._overrides, faults = environment.overrides(environ, names)
        self._faults += faults
        self._names = names

    def loaded(self) -> Loaded:
        """Everything read and checked, or every fault."""
        self._override()
        self._check_names()
        for part in self._parts.values():
            if part.broken:
                continue
            self._find_placeholders(part)
            self._find_secrets(part)
            self._read(part)
        self._check_consistency()
        if self._faults:
            raise ConfigurationError(*self._lines())
        settings = self._settings()
        sources = {dotted(leaf.at): self._source(leaf.at) or Default() for leaf in keys.leaves(settings)}
        return Loaded(settings, self._path, sources)

    def store_path(self) -> Path:
        """Only this key read, by the same rules as with everything else."""
        found: Path = self.only("store")["path"]
        return found

    def only(self, section: str) -> Mapping[str, Any]:
        """What is read of one section alone, by attribute."""
        self._override()
        part = self._parts[section,]
        if not part.broken:
            self._find_placeholders(part)
            self._read(part)
        # What is misspelt might be this very section.
        self._faults = [f for f in self._faults if len(f.at) <= 1 or f.at[0] not in keys.SECTIONS or f.at[0] == section]
        if self._faults:
            raise ConfigurationError(*self._lines())
        return part.read

    def _written(self) -> Iterator[Partial]:
        """The sections of the file, without what no section has."""
        for section, inside in self._file.root.items():
            kind = keys.SECTIONS.get(section)
            if kind is None:
                self._fault((section,), f"unknown key{nearest(section, keys.SECTIONS) or elsewhere(section)}")
            elif not kind.named:
                yield self._section((section,), kind.model, inside)
            elif not isinstance(inside, dict | None):
                self._fault((section,), "is no mapping of names")
            else:
                for name, part in (inside or {}).items():
                    yield self._section((section, name), kind.model, part)
        for section, kind in keys.SECTIONS.items():
            if not kind.named and section not in self._file.root:
                yield Partial((section,), kind.model)

    def _section(self, at: fault.Path, model: type[Section], inside: Any) -> Partial:
        part = Partial(at, model)
        if not isinstance(inside, dict | None):
            self._fault(at, "is no mapping of keys")
            part.broken = True
            return part
        allowed = keys.written_keys(model)
        for key, value in (inside or {}).items():
            if key in allowed:
                part.raw[key] = value
            elif key in keys.secret_keys(model):
                self._fault((*at, key), f"a secret never stands in this file; {where_secrets_go((*at, key))}")
            else:
                self._fault((*at, key), f"unknown key{nearest(key, allowed) or elsewhere(key)}")
        return part

    def _override(self) -> None:
        """Let the environment's values take the place of the file's."""
        for at, override in self._overrides.items():
            kind = keys.SECTIONS[str(at[0])]
            part = self._parts.setdefault(at[:-1], Partial(at[:-1], kind.model))
            if at[-1] not in keys.secret_keys(kind.model):
                part.raw[str(at[-1])] = override.value

    def _check_names(self) -> None:
        """Names that can be told apart, also in the environment; and at least one client and route."""
        taken: dict[tuple[str, str], str] = {}
        for at in self._parts:
            if not keys.SECTIONS[str(at[0])].named:
                continue
            section, name = str(at[0]), str(at[1])
            try:
                values.name(name)
            except ValueError as error:
                self._fault(at, str(error))
            other = taken.setdefault((section, environment.folded(name)), name)
            if other != name:
                self._fault(at, f"cannot be told from `{other}` in the environment; they differ in case or dashes only")
        for section, kind in keys.SECTIONS.items():
            if kind.named and not any(at[0] == section for at in self._parts):
                self._fault((section,), f"is required: name at least one of the {section}")

    def _find_placeholders(self, part: Partial) -> None:
        for key, value in part.raw.items():
            for at, text in texts((*part.at, key), value):
                if values.is_placeholder(text):
                    self._fault(at, f"{shown(text)} is a placeholder; put your own value there")

    def _find_secrets(self, part: Partial) -> None:
        for key in keys.secret_keys(part.model):
            at: fault.Path = (*part.at, key)
            file_at: fault.Path = (*part.at, f"{key}_file")
            file = part.raw.get(str(file_at[-1]))
            if file is not None and not isinstance(file, str):
                continue  # a fault of its own, that `_read` finds
            wanted = credentials.Wanted(
                at=at,
                file=file,
                file_source=self._source(file_at),
                override=self._overrides.get(at),
                required=keys.fields(part.model)[key][1].is_required(),
                chosen=keys.is_chosen(keys.fields(part.model)[key][1]),
            )
            match credentials.find(wanted, self._places):
                case credentials.Found(secret=secret, source=source):
                    part.raw[key] = secret
                    self._secrets[at] = source
                case Fault() as found:
                    self._faults.append(found)
                case None:
                    pass

    def _read(self, part: Partial) -> None:
        """Read a section by its model; of a faulty one, whatever can be read by itself."""
        raw = listen_unless_socket(part.raw) if part.at == ("http",) else part.raw
        try:
            whole = part.model.model_validate(raw, context=self._context, by_alias=True, by_name=False)
        except ValidationError as error:
            for details in error.errors(include_url=False):
                self._refuse(part, details)
        else:
            part.read = dict(whole)
            return
        for key, (attribute, of) in keys.fields(part.model).items():
            if key not in raw:
                if not of.is_required():
                    part.read[attribute] = of.default
                continue
            try:
                adapter = TypeAdapter[Any](of.rebuild_annotation())
                part.read[attribute] = adapter.validate_python(raw[key], context=self._context)
            except ValidationError:
                continue  # told above, with the rest of its section

    def _refuse(self, part: Partial, details: ErrorDetails) -> None:
        at = (*part.at, *details["loc"])
        key = str(details["loc"][0])
        _, of = keys.fields(part.model)[key]
        if keys.is_secret(of):
            return  # `_find_secrets` has said more about it
        if details["type"] == "missing":
            self._fault(at, f"is required: {of.description}{self._made_by_environment(part.at)}")
        elif details["input"] is None:
            self._fault(at, "has no value (what begins with # is a comment: put it in quotes)")
        else:
            may_be_secret = key in keys.secret_file_keys(part.model) and len(str(details["input"])) >= SECRET_CHARACTERS
            self._fault(at, reason(details, repeat=not may_be_secret))

    def _made_by_environment(self, at: fault.Path) -> str:
        """Where only variables speak of a name, they may have misspelt it."""
        if at in self._file.lines or not keys.SECTIONS[str(at[0])].named:
            return ""
        return f"; only the environment has `{dotted(at)}`{nearest(str(at[1]), self._names[str(at[0])])}"

    def _check_consistency(self) -> None:
        parts = consistency.Parts(
            homeserver=self._parts["homeserver",].read,
            http=self._parts["http",].read,
            clients={str(at[1]): part.read for at, part in self._parts.items() if at[0] == "clients"},
            routes={str(at[1]): part.read for at, part in self._parts.items() if at[0] == "routes"},
            requests=self._parts["requests",].read,
            e2e=self._parts["e2e",].read,
            route_names=frozenset(str(at[1]) for at in self._parts if at[0] == "routes"),
        )
        for found in consistency.faults(parts):
            self._fault(found.at, found.reason)

    def _settings(self) -> Settings:
        whole: dict[str, Any] = {section: {} for section in keys.SECTIONS}
        for at, part in self._parts.items():
            inside = whole[str(at[0])] if len(at) > 1 else whole
            inside[str(at[-1])] = part.raw
        try:
            return Settings.model_validate(whole, context=self._context, by_alias=True, by_name=False)
        except ValidationError as error:  # nothing that the checks above let through; refused all the same
            raise ConfigurationError(*(f"{dotted(e['loc'])}: {reason(e)}" for e in error.errors())) from None

    def _source(self, at: fault.Path) -> Source | None:
        """Where the value at a path, or the list around it, came from; None where nobody gave it."""
        if at in self._secrets:
            return self._secrets[at]
        for override_at, override in self._overrides.items():
            if at[: len(override_at)] == override_at:
                return override.source
        return self._file.source(at)

    def _only_in_environment(self, at: fault.Path) -> Source | None:
        """The first variable that speaks of something inside of a path."""
        return next((o.source for path, o in self._overrides.items() if len(at) > 1 and path[: len(at)] == at), None)

    def _fault(self, at: fault.Path, why: str) -> None:
        source = self._source(at)
        for length in range(len(at) - 1, 0, -1):  # what is missing has no line; what it is missing from may have
            source = source or self._file.source(at[:length]) or self._only_in_environment(at[:length])
        self._faults.append(Fault(at, why, source))

    def _lines(self) -> list[str]:
        """One line for each faulty key, in the order of the sections; the first fault found is the closest one."""
        order = list(keys.SECTIONS)
        first: dict[fault.Path, Fault] = {}
        for found in self._faults:
            first.setdefault(found.at, found)
        ranked = sorted(first.values(), key=lambda f: order.index(str(f.at[0])) if f.at and f.at[0] in order else -1)
        return [str(found) for found in ranked]


def reason(details: ErrorDetails, *, repeat: bool = True) -> str:
    """What pydantic found, as the rest of a sentence that begins with the key; with `repeat` it shows the value."""
    context = details.get("ctx", {})
    if isinstance(error := context.get("error"), values.Unshown):
        return str(error)
    match details["type"]:
        case "value_error":
            why = str(context["error"])
        case "bool_type":
            why = "is neither true nor false"
        case "int_type":
            why = "is no whole number"
        case "greater_than_equal":
            why = f"is less than {context['ge']}"
        case "less_than_equal":
            why = f"is more than {context['le']}"
        case "literal_error":
            allowed = context["expected"].replace("'", "").replace(" or ", ", ").split(", ")
            why = f"is none of {', '.join(allowed)}{nearest(str(details['input']), allowed)}"
        case _:
            why = f"is refused: {details['msg']}"
    is_about_a_part = isinstance(details["input"], dict | list) and why.startswith("has ")
    return f"{shown(details['input'])} {why}" if repeat and not is_about_a_part else why


def texts(at: fault.Path, value: Any) -> Iterator[tuple[fault.Path, str]]:
    """Every text in a value, with its path."""
    match value:
        case str():
            yield at, value
        case list():
            for index, item in enumerate(value):
                yield from texts((*at, index), item)
        case _:
            return


def elsewhere(key: str) -> str:
    """A hint at another section that has this very key."""
    for section, kind in keys.SECTIONS.items():
        if key in keys.written_keys(kind.model):
            return f"; did you mean `{section}.{'NAME.' if kind.named else ''}{key}`?"
    return ""


def where_secrets_go(at: fault.Path) -> str:
    """What to do with a secret instead of writing it into the file."""
    ways = f"name that in `{dotted(at)}_file`, set {environment.variable_of(at)}"
    return f"write it into a file of mode 0600 and {ways}, or give a credential named {dotted(at)}"
