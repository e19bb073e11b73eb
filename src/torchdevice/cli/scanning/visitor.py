"""Finds constructs in source text by one walk over its syntax tree. `tables` says how each is treated."""

from __future__ import annotations

import ast
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from torchdevice.answers.packages import WITH_CPU_BACKEND, package
from torchdevice.cli.scanning import tables
from torchdevice.cli.scanning.files import Source, Tree
from torchdevice.cli.scanning.tables import CHANGED, HANDLED, UNKNOWN, UNSUPPORTED, Known, Tables
from torchdevice.packages import table as stand_ins

DEVICE_KEYWORDS = ("device", "device_type", "map_location", "location", "t")


@dataclass(frozen=True)
class Finding:
    """A construct that depends on an accelerator, its place, and how translation treats it."""

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


def findings(source: Source, known: Tables, names: dict[str, str], tree: Tree | None = None) -> list[Finding]:
    """All constructs in a source, in the order of its lines. Raises SyntaxError.

    `names` maps names to what was imported under them, and is kept between the cells of a notebook. `tree` is the tree
    that holds the source.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns of invalid escapes when the program runs
        parsed = ast.parse(source.text, source.file)
    visitor = _Visitor(source, known, names, tree or Tree((), ()), _Unrelated(parsed, known))
    visitor.visit(parsed)
    visitor.finish()
    return sorted(visitor.found, key=lambda finding: (finding.line, finding.construct))


class _Unrelated:
    """Classes of a file without base classes that have a method with the name of a torch method such as `cuda`.

    An expression is an object of such a class if it is `self` inside the class, a call of the class, or a name to which
    the file assigns only such calls.
    """

    def __init__(self, parsed: ast.AST, known: Tables) -> None:
        nodes = list(ast.walk(parsed))
        classes = [node for node in nodes if isinstance(node, ast.ClassDef) and _derives_from_nothing(node)]
        self._movers = {node.name: movers for node in classes if (movers := known.movers & _methods(node))}
        self._selves = {
            id(inner): node.name
            for node in classes
            if node.name in self._movers
            for inner in ast.walk(node)
            if isinstance(inner, ast.Name) and inner.id == "self"
        }
        bound = Counter(node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
        makers: dict[str, list[str]] = {}
        for node in nodes:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and len(node.targets) == 1:
                makers.setdefault(_name(node.targets[0]), []).append(_name(node.value.func))
            elif isinstance(node, ast.arg):
                bound[node.arg] += 1
                makers.setdefault(node.arg, []).append(_name(node.annotation))
        self._variables = {
            name: kinds[0] for name, kinds in makers.items() if len(kinds) == bound[name] and len({*kinds}) == 1
        }

    def has(self, receiver: ast.AST, method: str) -> bool:
        """Whether an expression is an object of such a class."""
        if isinstance(receiver, ast.Call):
            kind = _name(receiver.func)
        elif isinstance(receiver, ast.Name):
            kind = self._selves.get(id(receiver)) or self._variables.get(receiver.id, "")
        else:
            return False
        return method in self._movers.get(kind, ())


def _derives_from_nothing(node: ast.ClassDef) -> bool:
    return all(_name(base) == "object" for base in node.bases)


def _methods(node: ast.ClassDef) -> set[str]:
    return {each.name for each in node.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))}


def _name(node: ast.AST | None) -> str:
    return node.id if isinstance(node, ast.Name) else ""


class _Visitor(ast.NodeVisitor):
    def __init__(self, source: Source, known: Tables, names: dict[str, str], tree: Tree, unrelated: _Unrelated) -> None:
        self.found: list[Finding] = []
        self._tree = tree
        self._unrelated = unrelated
        self._unused: dict[str, ast.AST] = {}  # builders that were imported and not used so far
        self._source = source
        self._known = known
        self._names = names
        self._told: set[int] = set()  # nodes that belong to a construct already reported
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
            elif path == tables.CUDA_EXTENSION:
                self._unused[path] = node
            elif package(node.module) is None and node.module.partition(".")[0] not in stand_ins.PACKAGES:
                self._needs_cuda(node, path)

    def _imported(self, node: ast.AST, module: str) -> None:
        top = module.partition(".")[0]
        if not self._needs_cuda(node, module) and self._tree.comes_with and not self._guards and self._tree.lacks(top):
            self._add(node, f"import {top}", Known(UNKNOWN, tables.NEEDED.format(self._tree.comes_with)))

    def _needs_cuda(self, node: ast.AST, module: str) -> bool:
        top = module.partition(".")[0]
        row = (top, "") if top in stand_ins.PACKAGES else package(module)
        if row is None or self._tree.has_beside(self._source.file, top):
            return False
        name, note = row
        if self._guards:
            known = Known(CHANGED, tables.GUARDED)
        elif top in stand_ins.PACKAGES:
            known = _by_stand_in(
                module, [alias.name for alias in node.names] if isinstance(node, ast.ImportFrom) else []
            )
        else:
            known = Known(UNKNOWN if name in WITH_CPU_BACKEND else UNSUPPORTED, note)
        self._add(node, f"import {name}", known)
        return True

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
        elif isinstance(node.func, ast.Attribute) and not self._unrelated.has(node.func.value, node.func.attr):
            self._method(node, node.func.attr)
        self.generic_visit(node)

    def _torch_call(self, node: ast.Call, path: str) -> None:
        if path in tables.BUILDER_PATHS:
            if path == tables.CUDA_EXTENSION or _has_cuda_sources(node):
                self._told.add(id(node.func))
                self._unused.pop(path, None)
                self._add(node, path, Known(UNSUPPORTED, tables.CUDA_SOURCES))
        elif path == "torch.load" and len(node.args) < 2 and not any(k.arg == "map_location" for k in node.keywords):
            self._add(
                node, "torch.load without map_location", Known(HANDLED, "each storage goes where the policy says")
            )
        elif path == tables.NCCL:
            return  # its backend is reported at the string
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
        """Add a finding for a call of a translated function if it names an accelerator."""
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
            elif node.attr == tables.INTERFACE:
                self._add(node, f".{node.attr}", Known(UNSUPPORTED, tables.INTERFACES))
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
        if path == tables.CUDA_EXTENSION and id(node) not in self._told:
            self._unused.pop(path, None)
            self._add(node, path, Known(UNSUPPORTED, tables.CUDA_SOURCES))
        said = self._known.of_namespace(path)
        if said is not None:
            self._add(node, path, said)

    def finish(self) -> None:
        """Add the findings that need the whole file."""
        for path, node in self._unused.items():
            self._add(node, path, Known(UNSUPPORTED, tables.CUDA_SOURCES))

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
            self._add(node, f"the string {_shown(node)}", Known(HANDLED, "decided when it is passed to torch"))
        elif node.value == tables.INTERFACE:
            self._add(node, tables.INTERFACE, Known(CHANGED, tables.NO_INTERFACE))
        elif (backend := self._known.backend(node.value)) is not None:
            self._add(node, f"the backend {_shown(node)}", backend)
        else:
            for command, note in tables.COMMANDS.items():
                if node.value.split()[:1] == [command] or f" {command} " in f" {node.value.lstrip('!%')} "[:80]:
                    self._add(node, command, Known(UNSUPPORTED, note))

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        if self._is_built(node):
            if id(node) not in self._told:
                self._add(node, f"the string {_shown(node)}", Known(HANDLED, "decided when it is passed to torch"))
        else:
            self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        """Skip docstrings, but not lines of a notebook that are not Python."""
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


def _by_stand_in(module: str, names: list[str]) -> Known:
    """Whether a stand-in has the module and the names that are imported from its package."""
    row = stand_ins.MODULES.get(module)
    if row is None:
        return Known(UNSUPPORTED, tables.NO_STAND_IN.format(module))
    for name in names:
        if name not in row.names and f"{module}.{name}" not in stand_ins.MODULES and name not in ("*", "__version__"):
            return Known(UNSUPPORTED, tables.NO_STAND_IN.format(f"{module}.{name}"))
    return Known(HANDLED, tables.STAND_IN.format(row.package.how))


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
