"""What every part of a transaction shares: one way to run statements, one way to fail."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import DatabaseError, DBAPIError, IntegrityError, InternalError, OperationalError

from agentpod_bot.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from sqlalchemy import Connection, Executable
    from sqlalchemy import Row as Record

    from agentpod_bot.ports import T

NO_VALUES: Mapping[str, Any] = {}


def is_outage(error: BaseException) -> bool:
    """Whether the database itself failed (locked, full, read-only, damaged), not what was asked of it."""
    return isinstance(error, OperationalError | InternalError) or type(error) is DatabaseError


def unavailable(error: BaseException) -> StoreUnavailable:
    """The failure for a caller, in the database's own words; never the statement or its values."""
    said = error.orig if isinstance(error, DBAPIError) else type(error).__name__
    failure = StoreUnavailable(f"the store cannot be used now: {said}")
    failure.__cause__ = error
    return failure


class Transaction:
    """One work's part of a transaction. Once the database failed in it, nothing more can be done in it.

    That also holds where the work hides the failure: SQLite may have rolled everything
    back by itself then, and a later statement would be committed alone.

    Every method raises StoreUnavailable where the database failed, and ValueError where
    a record breaks a rule of the tables (a key that is not new, a question that is none).
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._outage: StoreUnavailable | None = None
        self._ended = False

    def check(self) -> None:
        """Raises StoreUnavailable where the database failed before, also if the work has hidden it."""
        if self._outage is not None:
            raise self._outage

    def end(self) -> None:
        """Rule out every further statement: the work has ended."""
        self._ended = True

    def savepoint(self, work: Callable[[], T]) -> T:
        """Run `work`; where it raises, undo what it did and raise on."""
        with self._watched():
            savepoint = self._connection.begin_nested()
        try:
            value = work()
        except BaseException:
            with self._watched():
                savepoint.rollback()
            raise
        with self._watched():
            savepoint.commit()
        return value

    def _rows(self, statement: Executable, values: Mapping[str, Any] = NO_VALUES) -> Sequence[Record[*tuple[Any, ...]]]:
        with self._watched():
            return self._connection.execute(statement, values).all()

    def _first(self, statement: Executable, values: Mapping[str, Any] = NO_VALUES) -> Record[*tuple[Any, ...]] | None:
        with self._watched():
            return self._connection.execute(statement, values).first()

    def _value(self, statement: Executable, values: Mapping[str, Any] = NO_VALUES) -> Any:
        """The first column of the first record, None where there is none."""
        record = self._first(statement, values)
        return None if record is None else record[0]

    def _change(self, statement: Executable, values: Mapping[str, Any] = NO_VALUES) -> int:
        """How many records the statement changed."""
        with self._watched():
            return self._connection.execute(statement, values).rowcount

    def _insert(self, statement: Executable, values: Mapping[str, Any]) -> Any:
        """The number that the database gave to the new record."""
        with self._watched():
            key = self._connection.execute(statement, values).inserted_primary_key
        return None if key is None else key[0]

    @contextmanager
    def _watched(self) -> Iterator[None]:
        if self._ended:
            raise RuntimeError("a transaction cannot be used after its work has ended")
        self.check()
        try:
            yield
        except IntegrityError as error:
            raise ValueError(f"the store cannot hold this record: {error.orig}") from error
        except DatabaseError as error:
            if not is_outage(error):
                raise
            self._outage = unavailable(error)
            raise self._outage from error
