"""The real daemon, which kills itself at a point that it was told: `python -m tests.crash.doomed`.

Reads one JSON line for each process that is to run: {"argv", "env", "output"}. Each is
forked off with everything imported (a start costs a tenth of what a new interpreter does),
runs the command line as `python -m agentpod_bot` does, and says its process id on standard
output; how it ended is said there too. Everything ends with standard input.

Every `await`, and every entering and leaving of an `async with`, in the modules of `WATCHED`
is a point twice: when it is come to, before what is awaited was begun, and when it has come
back. SIGUSR1 makes a process read its orders from $DOOMED: {"record": path} writes every
point from then on, as it is come to; {"kill": point} ends the process at it with SIGKILL. A
point is named by file, line, column, which of the two it is, and how often it was come to
since the order.
"""

from __future__ import annotations

import ast
import ctypes
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import CodeType, FrameType, ModuleType

WATCHED = ("agentpod_bot.api", "agentpod_bot.app", "agentpod_bot.broker", "agentpod_bot.matrix", "agentpod_bot.store")
PACKAGE = Path(__file__).parents[2] / "agentpod_bot"
PR_SET_PDEATHSIG = 1
IMPORTED = ("agentpod_bot.cli.commands", "agentpod_bot.config.load", "agentpod_bot.app.daemon")


class Orders:
    """What this process does at its points."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._kill: str | None = None
        self._record: Any = None

    def read(self, _number: int, _frame: FrameType | None) -> None:
        """Take the orders over; every count begins anew."""
        path = Path(os.environ["DOOMED"])
        orders = json.loads(path.read_text())
        self._counts.clear()
        self._kill = orders.get("kill")
        if self._record is not None:
            self._record.close()
        self._record = open(orders["record"], "w") if "record" in orders else None  # noqa: PTH123, SIM115 - kept open
        path.unlink()  # tells that they are in force

    def come_to(self, place: str) -> None:
        """Count a point; die where it is the one."""
        if self._kill is None and self._record is None:
            return
        self._counts[place] += 1
        point = f"{place} #{self._counts[place]}"
        if point == self._kill:
            os.kill(os.getpid(), signal.SIGKILL)
        if self._record is not None:
            self._record.write(point + "\n")
            self._record.flush()


ORDERS = Orders()


def begun(place: str) -> None:
    """An await is come to."""
    ORDERS.come_to(f"{place} begun")


def back(place: str, value: Any) -> Any:
    """An await has come back with this."""
    ORDERS.come_to(f"{place} back")
    return value


class Entered:
    """An asynchronous context manager with a point before and after its entering and its leaving."""

    def __init__(self, place: str, manager: Any) -> None:
        self._place = place
        self._manager = manager

    async def __aenter__(self) -> Any:
        """Enter."""
        begun(f"{self._place} enter")
        return back(f"{self._place} enter", await self._manager.__aenter__())

    async def __aexit__(self, *exc: object) -> Any:
        """Leave."""
        begun(f"{self._place} leave")
        return back(f"{self._place} leave", await self._manager.__aexit__(*exc))


class Points(ast.NodeTransformer):
    """Puts the points into a module."""

    def __init__(self, file: str) -> None:
        self._file = file

    def visit_Await(self, node: ast.Await) -> ast.AST:
        """`await x` becomes `back(place, await (begun(place), x)[1])`."""
        self.generic_visit(node)
        place = self._place(node)
        both = ast.Tuple([_call("begun", place), node.value], ast.Load())
        waited = ast.Await(ast.Subscript(both, ast.Constant(1), ast.Load()))
        return ast.copy_location(_call("back", place, waited), node)

    def visit_AsyncWith(self, node: ast.AsyncWith) -> ast.AST:
        """`async with x` becomes `async with Entered(place, x)`."""
        self.generic_visit(node)
        for item in node.items:
            item.context_expr = _call("Entered", self._place(item.context_expr), item.context_expr)
        return node

    def _place(self, node: ast.expr) -> str:
        return f"{self._file}:{node.lineno}:{node.col_offset}"


def _call(name: str, place: str, *more: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(f"_doomed_{name}", ast.Load()), [ast.Constant(place), *more], [])


class Loader(importlib.machinery.SourceFileLoader):
    """Loads a module with its points, never from a cache."""

    def get_code(self, fullname: str) -> CodeType:
        """Compile the source anew, with the points in."""
        path = Path(self.get_filename(fullname))
        tree = Points(str(path.relative_to(PACKAGE))).visit(ast.parse(path.read_bytes(), path))
        code: CodeType = compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)
        return code

    def exec_module(self, module: ModuleType) -> None:
        """Hand the module what its points call."""
        vars(module).update(_doomed_begun=begun, _doomed_back=back, _doomed_Entered=Entered)
        super().exec_module(module)


class Finder(importlib.abc.MetaPathFinder):
    """Finds the watched modules."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Only these; everything else is loaded as usual."""
        if not fullname.startswith(WATCHED):
            return None
        found = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if found is None or found.origin is None:
            return found
        inside = found.submodule_search_locations
        loader = Loader(fullname, found.origin)
        return importlib.util.spec_from_file_location(
            fullname, found.origin, loader=loader, submodule_search_locations=inside
        )


def run(order: dict[str, Any]) -> NoReturn:
    """Be the daemon."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGUSR1, ORDERS.read)
    os.environ.update(order["env"])
    log = os.open(order["output"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number, target in ((0, nowhere), (1, log), (2, log)):
        os.dup2(target, number)
    sys.argv = ["agentpod-bot", *order["argv"]]
    code = 70
    try:
        importlib.import_module("agentpod_bot.__main__").main()
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else 70
    finally:
        sys.stderr.flush()
        os._exit(code)


def told(**what: int) -> None:
    """One line to whoever started us; written at once, for the handler of a signal writes too."""
    os.write(1, json.dumps(what).encode() + b"\n")


def reap(_number: int, _frame: FrameType | None) -> None:
    """Say how those ended that did."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        told(ended=pid, code=os.waitstatus_to_exitcode(status))


def main() -> None:
    """Serve until standard input ends."""
    sys.meta_path.insert(0, Finder())
    for name in IMPORTED:
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, reap)
    told(ready=1)
    for line in sys.stdin.buffer:
        order = json.loads(line)
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            run(order)
        told(started=pid)


if __name__ == "__main__":
    main()
