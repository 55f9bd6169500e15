"""Preemption of simulated tasks between any two statements of chosen modules.

A simulated task normally runs until it waits or takes a lock. Code that takes no lock is therefore never interrupted in
the middle, though a thread would be. :func:`preempted_lines` closes that gap:

1. The source of each chosen module is parsed, and a call of a checkpoint is put before each statement of its functions.
2. The result is compiled, and the code objects of the module's functions and methods are replaced by the compiled ones.
   Line numbers, closures and defaults stay, so that tracebacks and ``super()`` work as before.
3. The checkpoint counts down. At zero the running task yields, and the runtime's seeded random source draws the next
   count. Equal seeds therefore still give equal runs.
4. Some of the preempted tasks pause for a random time of the virtual clock. Simulated code takes no time, so that a
   task which only yields is interleaved only with tasks that are ready at the same instant. During a pause messages
   arrive and timers fire between two statements, as while the operating system has descheduled a thread.
5. At the end of the block the original code objects are put back.

A trace function (``sys.settrace``) would be shorter, but a greenlet that is switched inside of a trace function leaves
tracing off for all other greenlets of the thread.

Only statements are separated. ``self.count += 1`` stays one step, as it is for CPython's threads when no call is in it.
"""

from __future__ import annotations

import ast
import functools
import inspect
import pkgutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from threading import get_ident
from types import CodeType, FunctionType, ModuleType

from metaclient.runtime.simulation import SimRuntime

__all__ = ["LinePauses", "modules_below", "preempted_lines"]

_CHECKPOINT = "__line_checkpoint__"  # ends with underscores, so that class bodies do not mangle it


def modules_below(*packages: str, leave_out: Sequence[str] = ()) -> list[ModuleType]:
    """Import these modules or packages with all that is below them; return all but those at or below ``leave_out``.

    The result does not depend on what the process has imported before, so that it is the same in every run.

    >>> found = modules_below("metaclient.runtime", leave_out=["metaclient.runtime.threads"])
    >>> [module.__name__ for module in found][:2]
    ['metaclient.runtime', 'metaclient.runtime.closing']
    """
    found = {module.__name__: module for package in packages for module in _below(package, frozenset(leave_out))}
    return list(found.values())


def _below(name: str, leave_out: frozenset[str]) -> Iterator[ModuleType]:
    if name in leave_out:
        return
    module = import_module(name)
    yield module
    for found in pkgutil.iter_modules(getattr(module, "__path__", ())):  # sorted by name
        yield from _below(f"{name}.{found.name}", leave_out)


class LinePauses:
    """The pauses of preempted tasks: their share, their maximal length, and the time of each.

    A pause begins before about ``share`` of the statements. It lasts ``seconds_max`` times the cube of a uniform number
    between 0 and 1: most pauses are short, an eighth of the maximum in the median, and a few are long.
    """

    def __init__(self, share: float, seconds_max: float) -> None:
        if share < 0 or seconds_max < 0:
            raise ValueError(f"a pause's share and length must not be negative, got {share!r} and {seconds_max!r}")
        self.share = share
        self.seconds_max = seconds_max
        self.spans: list[tuple[float, float]] = []  # instants at which a pause began and was to end, oldest first

    def stop(self) -> None:
        """Begin no more pauses; tasks still yield."""
        self.share = 0.0

    def total_s(self, begun: float, ended: float) -> float:
        """Return how many seconds of pauses lie between two instants; two tasks that pause at once count twice.

        >>> pauses = LinePauses(0.1, 1.0)
        >>> pauses.spans += [(1.0, 1.5), (1.25, 3.0)]
        >>> pauses.total_s(0.0, 2.0)
        1.25
        """
        return sum([max(0.0, min(end, ended) - max(start, begun)) for start, end in self.spans])


@contextmanager
def preempted_lines(
    runtime: SimRuntime, modules: Sequence[ModuleType], share: float, pauses: LinePauses | None = None
) -> Iterator[None]:
    """Let tasks of ``runtime`` yield before about this share of the statements of ``modules``, within the block.

    With ``pauses``, some of these tasks pause; the share of pauses is part of ``share``.

    A process can do this for one runtime at a time. ``modules`` must not contain the modules of the runtime: a task
    that is switched while the scheduler itself runs would corrupt it.

    >>> with SimRuntime(3) as runtime, preempted_lines(runtime, [], 0.5):
    ...     runtime.run(len, "abc")
    3
    """
    if _countdown.runtime is not None:
        raise RuntimeError("lines are being preempted already: one runtime at a time in a process")
    own = [module.__name__ for module in modules if module.__name__.startswith("metaclient.runtime")]
    if own:
        raise ValueError(f"the scheduler cannot preempt itself: leave out {', '.join(own)}")
    if not 0 < share <= 1:
        raise ValueError(f"the share of preempted lines must be above 0 and at most 1, got {share!r}")
    if pauses is not None and pauses.share > share:
        raise ValueError(f"pauses are a part of the preempted lines: {pauses.share!r} is more than {share!r}")
    replaced: list[tuple[FunctionType, CodeType]] = []
    _countdown.begin(runtime, share, pauses or LinePauses(0.0, 0.0))
    try:
        for module in modules:
            replaced.extend(_replace_code(module))
        yield
    finally:
        for function, code in reversed(replaced):  # if a function was replaced twice, its first code is restored last
            function.__code__ = code
        for module in modules:
            vars(module).pop(_CHECKPOINT, None)
        _countdown.end()


class _Countdown:
    """The state of the checkpoint: the number of statements until the running task yields."""

    __slots__ = ("left", "pauses", "runtime", "share", "thread")

    def __init__(self) -> None:
        self.runtime: SimRuntime | None = None
        self.share = 0.0
        self.pauses = LinePauses(0.0, 0.0)
        self.left = 0
        self.thread = 0

    def begin(self, runtime: SimRuntime, share: float, pauses: LinePauses) -> None:
        self.runtime, self.share, self.pauses, self.thread = runtime, share, pauses, get_ident()
        self._draw(runtime)

    def end(self) -> None:
        self.runtime = None

    def _draw(self, runtime: SimRuntime) -> None:
        self.left = 1 + int(runtime._chance.expovariate(self.share))

    def checkpoint(self) -> None:
        """Count a statement. Statements of other threads, which run the same code for other runtimes, do not count."""
        if get_ident() != self.thread:
            return
        self.left -= 1
        if self.left <= 0 and self.runtime is not None:
            self._draw(self.runtime)
            self._preempt(self.runtime, self.pauses)

    def _preempt(self, runtime: SimRuntime, pauses: LinePauses) -> None:
        if not pauses.share or runtime._chance.random() * self.share >= pauses.share:
            runtime._give_way()
            return
        drawn = runtime._chance.random()
        seconds = pauses.seconds_max * drawn * drawn * drawn  # products, which are the same on every machine
        pauses.spans.append((runtime.now(), runtime.now() + seconds))
        runtime._pause(seconds)


_countdown = _Countdown()


def _replace_code(module: ModuleType) -> list[tuple[FunctionType, CodeType]]:
    """Put the code with checkpoints into the module's functions; return the functions with their original code."""
    instrumented = _instrumented(module)
    vars(module)[_CHECKPOINT] = _countdown.checkpoint
    replaced = []
    for function in _functions(module):
        if function.__name__ == "__del__":  # the collector runs it in any task, at instants independent of the seed
            continue
        code = function.__code__
        new = instrumented.get((code.co_qualname, code.co_firstlineno))
        if new is not None and new.co_freevars == code.co_freevars:
            function.__code__ = new
            replaced.append((function, code))
    return replaced


@functools.cache
def _instrumented(module: ModuleType) -> dict[tuple[str, int], CodeType]:
    """Compile the module's source with checkpoints; return its code objects by qualified name and first line."""
    tree = _Checkpoints().visit(ast.parse(inspect.getsource(module)))
    ast.fix_missing_locations(tree)
    whole = compile(tree, module.__file__ or module.__name__, "exec", dont_inherit=True)
    return {(code.co_qualname, code.co_firstlineno): code for code in _inside(whole)}


def _inside(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _inside(constant)


class _Checkpoints(ast.NodeTransformer):
    """Puts a checkpoint before each statement of each function, but not before those of modules and classes."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self._mark(node)
        return node

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        self._mark(node)
        return node

    def _mark(self, node: ast.AST) -> None:
        """Mark all lists of statements of a function, a loop, a branch or a handler, and those inside of them."""
        for field in ("body", "orelse", "finalbody"):
            statements = getattr(node, field, None)
            if isinstance(statements, list):
                setattr(node, field, [marked for one in statements for marked in self._marked(one)])
        for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            self._mark(part)

    def _marked(self, statement: ast.stmt) -> list[ast.stmt]:
        if isinstance(statement, ast.ClassDef):
            self.generic_visit(statement)
        else:
            self._mark(statement)
        if isinstance(statement, ast.Global | ast.Nonlocal) or _is_text(statement):
            return [statement]
        call = ast.Call(func=ast.Name(id=_CHECKPOINT, ctx=ast.Load()), args=[], keywords=[])
        return [ast.copy_location(ast.Expr(value=ast.copy_location(call, statement)), statement), statement]


def _is_text(statement: ast.stmt) -> bool:
    """Return True for a docstring: a new docstring must not change the run of a seed."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _functions(module: ModuleType) -> Iterator[FunctionType]:
    """Yield every function and method that the module defines, without those that it imports."""
    for value in vars(module).values():
        yield from _functions_of(value, module.__name__)


def _functions_of(value: object, name: str) -> Iterator[FunctionType]:
    match value:
        case FunctionType():
            if value.__module__ == name:
                yield value
            if (wrapped := getattr(value, "__wrapped__", None)) is not None:
                yield from _functions_of(wrapped, name)
        case staticmethod() | classmethod():
            yield from _functions_of(value.__func__, name)
        case property():
            for accessor in (value.fget, value.fset, value.fdel):
                yield from _functions_of(accessor, name)
        case functools.cached_property():
            yield from _functions_of(value.func, name)
        case type():
            if value.__module__ == name:
                for member in vars(value).values():
                    yield from _functions_of(member, name)
        case _:
            if value is not None and (wrapped := getattr(value, "__wrapped__", None)) is not None:
                yield from _functions_of(wrapped, name)
