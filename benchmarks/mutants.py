"""Mutants of a file: an operator or name of a function is changed, and a test should fail."""

from __future__ import annotations

import argparse
import ast
import copy
import gc
import os
import random
import resource
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest
from _bench import Lines, command_line, run

import inference

SWAPS: dict[Any, Any] = {ast.Add: ast.Sub, ast.Mult: ast.Div, ast.Lt: ast.GtE, ast.And: ast.Or}
SWAPS |= {ast.Gt: ast.LtE, ast.Eq: ast.NotEq, ast.BitAnd: ast.BitOr, "min": "max", "any": "all"}
SWAPS |= {"amin": "amax", "minimum": "maximum", "log": "exp", "sum": "mean"}
SWAPS |= {new: old for old, new in SWAPS.items()}


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """Copies of a node with one change each."""
    new: Any = copy.deepcopy(node)
    match node:
        case ast.BinOp(left, op, _) | ast.BoolOp(op, [left, *_]) if type(op) in SWAPS:
            new.op = SWAPS[type(op)]()
            yield from (new, left)
        case ast.Compare(ops=[op]) if type(op) in SWAPS:
            yield ast.Compare(new.left, [SWAPS[type(op)]()], new.comparators)
        case ast.UnaryOp(operand=part) | ast.IfExp(body=part):  # the axis -1 becomes 1
            yield part
        case ast.Attribute(attr=name) if name in SWAPS:
            yield ast.Attribute(new.value, SWAPS[name], new.ctx)


def codes(code: CodeType) -> dict[tuple[str, int], CodeType]:
    """Code of a module and of every function in it, by name and first line."""
    parts = [codes(part) for part in code.co_consts if isinstance(part, CodeType)]
    own = {(code.co_qualname, code.co_firstlineno): code}
    return dict(pair for part in (own, *parts) for pair in part.items())


def mutants(tree: ast.Module) -> Iterator[dict[str, Any]]:
    """Line, code before and after of every mutant, while the tree has it."""
    nodes = list(ast.walk(tree))
    for owner, name, value in [(node, *field) for node in nodes for field in ast.iter_fields(node)]:
        for k, old in enumerate(value if isinstance(value, list) else [value]):
            for new in [] if not isinstance(old, ast.expr) else changes(old):
                parts = [*value[:k], new, *value[k + 1 :]] if isinstance(value, list) else new
                setattr(owner, name, parts)
                yield {"line": old.lineno, "before": ast.unparse(old), "after": ast.unparse(new)}
                setattr(owner, name, value)


def first_failure(new: dict[FunctionType, CodeType], tests: list[pytest.Item]) -> str:
    """First test that fails in a fork with other code of functions, empty where none does."""
    readable, writable = os.pipe()
    if child := os.fork():
        os.close(writable)
        crashed = os.waitpid(child, 0)[1]
        return "time limit, or a crash" if crashed else os.read(readable, 4096).decode()
    resource.setrlimit(resource.RLIMIT_CPU, (150, 150))  # seconds of the processor
    for function, code in new.items():
        function.__code__ = code
    for test, following in zip(tests, [*tests[1:], None], strict=True):
        test.config.hook.pytest_runtest_protocol(item=test, nextitem=following)
        if test.session.testsfailed:
            os.write(writable, test.nodeid.encode())
            break
    os._exit(0)


class Trial:
    """Plugin of pytest: tests run once a mutant, each time to the first failure."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.lines = args, list[dict[str, Any]]()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        gc.unfreeze()
        path, found = Path(inference.__file__).parent.parent / self.args.file, []
        functions = [part for part in gc.get_objects() if type(part) is FunctionType]
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for told in mutants(tree):
            new = codes(compile(ast.fix_missing_locations(copy.deepcopy(tree)), path, "exec"))
            own = [part for part in functions if part.__code__.co_filename == str(path)]
            pairs = {part: new[next(iter(codes(part.__code__)))] for part in own}
            if changed := {part: code for part, code in pairs.items() if code != part.__code__}:
                found.append((told, changed))
        for told, changed in random.Random(self.args.seed).sample(found, self.args.count):
            self.lines.append(told | {"killer": first_failure(changed, session.items)})
        return True


def measure(args: argparse.Namespace) -> Lines:
    trial = Trial(args)
    options = "-p no:terminal -p no:cacheprovider -m 'not slow' --import-mode=importlib"
    pytest.main(["-o", f"addopts={options}", *args.tests], plugins=[trial])
    yield from ({"file": args.file} | line for line in trial.lines)


def main(argv: list[str] | None = None) -> None:
    parser = command_line(__file__, __doc__, threads=1)
    parser.add_argument("--file", default="inference/base/align.py", help="file to be changed")
    parser.add_argument("--tests", nargs="+", default=["tests/base/test_align.py"])
    parser.add_argument("--count", type=int, default=8, help="number of mutants")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of mutants")
    run(parser, measure, argv, quick={"count": 2})


if __name__ == "__main__":
    main()
