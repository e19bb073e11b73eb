"""From source text to findings: one walk over the syntax tree, no execution. What a construct means is `tables`."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from torchdevice.answers.packages import package
from torchdevice.cli.scanning import tables
from torchdevice.cli.scanning.files import Source
from torchdevice.cli.scanning.tables import CHANGED, HANDLED, UNSUPPORTED, Known, Tables

DEVICE_KEYWORDS = ("device", "device_type", "map_location", "location", "t")


@dataclass(frozen=True)
class Finding:
    """A construct that is bound to an accelerator, where it is, and what becomes of it."""

    file: str
    cell: int | None
    line: int
    construct: str
    group: str
    note: str

    @property
    def place(self) -> str:
        """`train.py:12`, or `demo.ipynb[3]:12` for a cell."""
        return f"{self.file}{'' if self.cell is None else f'[{self.cell}]'}:{self.line}"


def findings(source: Source, known: Tables, names: dict[str, str]) -> list[Finding]:
    """All constructs in a piece of Python, in the order of its lines. Raises SyntaxError.

    `names` holds what was imported under which name, from one cell of a notebook to the next.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes and the like are the business of whoever runs it
        tree = ast.parse(source.text, source.file)
    visitor = _Visitor(source, known, names)
    visitor.visit(tree)
    return sorted(visitor.found, key=lambda finding: (finding.line, finding.construct))


class _Visitor(ast.NodeVisitor):
    def __init__(self, source: Source, known: Tables, names: dict[str, str]) -> None:
        self.found: list[Finding] = []
        self._source = source
        self._known = known
        self._names = names
        self._told: set[int] = set()  # nodes that are part of a construct that was told already
        self._guards = 0

    def _add(self, node: ast.AST, construct: str, known: Known) -> None:
        line = getattr(node, "lineno", 1)
        self.found.append(Finding(self._source.file, self._source.cell, line, construct, known.group, known.note))

    # --- imports -------------------------------------------------------------------------------------------------

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._names[alias.asname or alias.name.partition(".")[0]] = (
                alias.name if alias.asname else alias.name.partition(".")[0]
            )
            self._imported(node, alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level or node.module is None:
            return
        self._imported(node, node.module)
        for alias in node.names:
            path = f"{node.module}.{alias.name}"
            self._names[alias.asname or alias.name] = path
            said = self._known.of_namespace(path)
            if said is not None:
                self._add(node, path, said)
            elif package(node.module) is None:
                self._imported(node, path)

    def _imported(self, node: ast.AST, module: str) -> None:
        row = package(module)
        if row is not None:
            name, note = row
            known = Known(CHANGED, tables.GUARDED) if self._guards else Known(UNSUPPORTED, note)
            self._add(node, f"import {name}", known)

    def visit_Try(self, node: ast.Try) -> None:
        guarded = any(_catches_import_error(handler) for handler in node.handlers)
        self._guards += guarded
        for statement in node.body:
            self.visit(statement)
        self._guards -= guarded
        for rest in (*node.handlers, *node.orelse, *node.finalbody):
            self.visit(rest)

    # --- calls ---------------------------------------------------------------------------------------------------

    def visit_Call(self, node: ast.Call) -> None:
        path = self._path(node.func)
        if path is not None and path.startswith("torch."):
            self._torch_call(node, path)
        elif isinstance(node.func, ast.Attribute):
            self._method(node, node.func.attr)
        self.generic_visit(node)

    def _torch_call(self, node: ast.Call, path: str) -> None:
        if path in tables.BUILDER_PATHS:
            if path == tables.CUDA_EXTENSION or _has_cuda_sources(node):
                self._add(node, path, Known(UNSUPPORTED, tables.CUDA_SOURCES))
        elif path == "torch.load" and len(node.args) < 2 and not any(k.arg == "map_location" for k in node.keywords):
            self._add(
                node, "torch.load without map_location", Known(HANDLED, "each storage goes where the policy says")
            )
        elif path == tables.NCCL:
            return  # its backend is told where the string is
        elif self._known.is_point(path):
            self._with_device(node, path)

    def _method(self, node: ast.Call, name: str) -> None:
        if name in self._known.movers:
            self._add(node, f".{name}()", Known(HANDLED, "the tensor or module moves to the target"))
        elif name == "double" and not node.args:
            self._add(node, ".double()", Known(CHANGED, tables.DOUBLE))
        elif name in self._known.taking_device:
            self._with_device(node, f".{name}")

    def _with_device(self, node: ast.Call, name: str) -> None:
        """A call to something with a row: a finding if it names an accelerator."""
        arguments = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg in DEVICE_KEYWORDS)]
        devices = [device for argument in arguments for device in self._devices(argument)]
        if devices:
            self._told.update(id(device) for device in devices)
            self._add(node, f"{name}({_shown(devices[0])})", Known(HANDLED, "the request becomes one for the target"))

    def _devices(self, node: ast.AST) -> Iterator[ast.AST]:
        if isinstance(node, ast.IfExp):
            yield from self._devices(node.body)
            yield from self._devices(node.orelse)
        elif (isinstance(node, ast.Constant) and self._known.is_device(node.value)) or self._is_built(node):
            yield node

    def _is_built(self, node: ast.AST) -> bool:
        """`f"cuda:{rank}"`."""
        if not isinstance(node, ast.JoinedStr) or not node.values:
            return False
        first = node.values[0]
        return isinstance(first, ast.Constant) and self._known.is_device(str(first.value)) and len(node.values) == 2

    # --- names, strings, comparisons -----------------------------------------------------------------------------

    def visit_Attribute(self, node: ast.Attribute) -> None:
        path = self._path(node)
        if path is None:
            if node.attr.startswith("is_") and node.attr[3:] in self._known.accelerators:
                self._add(node, f".{node.attr}", Known(CHANGED, tables.TYPE_CHECK))
            self.generic_visit(node)
        elif path in tables.DTYPES:
            self._add(node, path, Known(CHANGED, tables.DTYPES[path]))
        else:
            self._namespace(node, path)

    def visit_Name(self, node: ast.Name) -> None:
        path = self._names.get(node.id)
        if path is not None and isinstance(node.ctx, ast.Load) and path != node.id:
            self._namespace(node, path)

    def _namespace(self, node: ast.AST, path: str) -> None:
        said = self._known.of_namespace(path)
        if said is not None:
            self._add(node, path, said)

    def visit_Compare(self, node: ast.Compare) -> None:
        sides = [node.left, *node.comparators]
        devices = [side for side in sides if isinstance(side, ast.Constant) and self._known.is_device(side.value)]
        if devices:
            self._told.update(id(device) for device in devices)
            self._add(node, f"comparison with {_shown(devices[0])}", Known(CHANGED, tables.TYPE_CHECK))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if id(node) in self._told or not isinstance(node.value, str):
            return
        if self._known.is_device(node.value):
            self._add(node, f"the string {_shown(node)}", Known(HANDLED, "decided where it reaches torch"))
        elif (backend := self._known.backend(node.value)) is not None:
            self._add(node, f"the backend {_shown(node)}", backend)
        else:
            for command, note in tables.COMMANDS.items():
                if node.value.split()[:1] == [command] or f" {command} " in f" {node.value.lstrip('!%')} "[:80]:
                    self._add(node, command, Known(UNSUPPORTED, note))

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        if self._is_built(node):
            if id(node) not in self._told:
                self._add(node, f"the string {_shown(node)}", Known(HANDLED, "decided where it reaches torch"))
        else:
            self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        """Strings that stand alone are documentation, except lines of a notebook that were no Python."""
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        if not is_text or self._source.cell is not None:
            self.generic_visit(node)

    def _path(self, node: ast.AST) -> str | None:
        """The dotted path that an expression was imported as: `nn.Linear` → `torch.nn.Linear`."""
        names: list[str] = []
        while isinstance(node, ast.Attribute):
            names.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self._names:
            return None
        return ".".join([self._names[node.id], *reversed(names)])


def _catches_import_error(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    wide = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}
    return any(isinstance(kind, ast.Name) and kind.id in wide for kind in caught)


def _has_cuda_sources(node: ast.Call) -> bool:
    named = any(keyword.arg == "cuda_sources" for keyword in node.keywords)
    strings = [child.value for child in ast.walk(node) if isinstance(child, ast.Constant)]
    return named or any(isinstance(value, str) and value.endswith((".cu", ".cuh")) for value in strings)


def _shown(node: ast.AST) -> str:
    return f'"{node.value!s}"' if isinstance(node, ast.Constant) else ast.unparse(node).replace("'", '"')
