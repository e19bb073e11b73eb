"""Whether an import of a package is optional, from the source of the importing code.

`try: import triton` with `except ImportError: triton = None` is optional (a choice): the program has an alternative. An
import whose error is not caught, or whose handler raises again, is required (a demand).
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import linecache
import os
from types import FrameType

_MACHINERY = ("<frozen importlib._bootstrap", str(importlib.__file__))
_LOOKS = ("<frozen importlib.util>", str(importlib.util.__file__))  # checks whether a package exists
# Files that catch the error and raise their own error later, with the reason. Their imports are required.
_DEMANDING = {"transformers/dynamic_module_utils.py": "raises one ImportError for all missing packages"}
_CAUGHT = frozenset({"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})


def is_choice(frame: FrameType | None) -> bool:
    """Whether one of the imports on the stack, from `frame` up, is optional."""
    importing = False
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_MACHINERY):
            importing = True
        elif importing and file.startswith(_LOOKS):
            return True
        elif importing:
            importing = False
            if not file.replace(os.sep, "/").endswith(tuple(_DEMANDING)) and _is_guarded(file, frame):
                return True
        frame = frame.f_back
    return False


def _is_guarded(file: str, frame: FrameType) -> bool:
    source = "".join(linecache.getlines(file, frame.f_globals))
    return any(first <= frame.f_lineno <= last for first, last in _guarded_lines(source))


@functools.lru_cache(maxsize=64)
def _guarded_lines(source: str) -> tuple[tuple[int, int], ...]:
    """The lines in which an import is optional."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # a notebook cell with a magic cannot be parsed
        return ()
    return tuple(
        (node.body[0].lineno, node.body[-1].end_lineno or node.body[-1].lineno)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Try, ast.With))
        and (_goes_on(node) if isinstance(node, ast.Try) else _suppresses(node))
    )


def _goes_on(node: ast.Try) -> bool:
    """Whether the program continues after the first handler that catches the error."""
    for handler in node.handlers:
        if handler.type is None or _names(handler.type) & _CAUGHT:
            return not any(isinstance(statement, ast.Raise) for statement in handler.body)
    return False


def _suppresses(node: ast.With) -> bool:
    calls = [item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call)]
    return any("suppress" in _names(call.func) and any(_names(a) & _CAUGHT for a in call.args) for call in calls)


def _names(node: ast.AST) -> set[str]:
    """`ImportError`, the members of a tuple, and the last name of a dotted path."""
    if isinstance(node, ast.Tuple):
        return {name for element in node.elts for name in _names(element)}
    return {node.id} if isinstance(node, ast.Name) else {node.attr} if isinstance(node, ast.Attribute) else set()
