"""TorchScript: a scripted graph does not call Python functions, so its devices are decided after compilation.

Device constants, factories without a device, `.cuda()` and `.cpu()` are rewritten in the graph.
`_torch.compilers.register_script_builtin` makes wrappers known as builtins to the TorchScript compiler.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import torch

from torchdevice._torch.compilers import inline_graph, parse_schema, script_graphs
from torchdevice._torch.core import RealDevice, RealTensor
from torchdevice.policy.hosts import is_accelerator
from torchdevice.translate.dtypes import narrowed
from torchdevice.translate.engine import Function, dress
from torchdevice.translate.loading import for_script
from torchdevice.translate.translator import Translator

Decide = Callable[[Any], Any]


def script(original: Function, path: str, translator: Translator, fresh: frozenset[str]) -> Function:
    """`torch.jit.script`: compiles with torch, then applies the policy to the devices in the graphs.

    `fresh`: the operators for which no device means "none given".
    """

    def compile_script(obj: Any, *args: Any, **kwargs: Any) -> Any:
        if len(args) < 2:  # the compiler looks names up in the caller's frame, which is one frame further up here
            kwargs["_frames_up"] = kwargs.get("_frames_up", 0) + 1
        return _retargeted(original(obj, *args, **kwargs), sys._getframe(1), path, translator, fresh)

    return dress(compile_script, original, path)


def load(original: Function, path: str, translator: Translator, fresh: frozenset[str]) -> Function:
    """`torch.jit.load`: takes a single device for everything.

    The policy also applies to devices that tracing stored as constants in the graphs.
    """

    def load_script(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        asked = getattr(map_location, "asked", map_location)  # torch.load passes archives of scripts to this function
        where = translator.translate(for_script(asked, translator), path)
        start = f.tell() if hasattr(f, "tell") else None

        def by_way_of_cpu(**_: Any) -> Any:
            """Moves tensor by tensor. Each is narrowed or stays on the CPU, according to `TORCHDEVICE_FLOAT64`."""
            if start is not None:
                f.seek(start)
            loaded = original(f, RealDevice("cpu"), *args, **kwargs).to(where)
            for graph in script_graphs(loaded):
                _move_constants(graph, where)
            return loaded

        try:
            made = original(f, where, *args, **kwargs)
        except TypeError as refusal:
            made = narrowed(refusal, by_way_of_cpu, (), {}, path, translator)
        return _retargeted(made, sys._getframe(1), path, translator, fresh)

    return dress(load_script, original, path)


def _move_constants(graph: Any, where: Any) -> None:
    """Moves the tensors in a graph. Scalars stay on the CPU, because they work with tensors on any device."""
    inline_graph(graph)
    for node in list(_nodes(graph)):
        value = node.output().toIValue() if node.kind() == "prim::Constant" else None
        if isinstance(value, RealTensor) and value.dim():
            node.output().replaceAllUsesWith(_constant(graph, node, value.to(where)))


def _retargeted(made: Any, frame: FrameType, path: str, translator: Translator, fresh: frozenset[str]) -> Any:
    for graph in script_graphs(made) if translator.in_force else ():
        _retarget(graph, frame, path, translator, fresh)
    return made


def _retarget(graph: Any, frame: FrameType, path: str, translator: Translator, fresh: frozenset[str]) -> None:
    inline_graph(graph)

    def decide(asked: Any) -> Any:
        given = translator.translate_from(asked, path, frame)
        return None if given is asked else given

    nodes = list(_nodes(graph))
    for node in nodes:
        if node.kind() == "prim::Constant" and str(node.output().type()) == "Device":
            given = decide(node.output().toIValue())
            if given is not None:
                node.output().replaceAllUsesWith(_constant(graph, node, given))
    for node in nodes:
        namespace, _, name = node.kind().partition("::")
        if namespace != "aten":
            continue
        if name in fresh:
            _fill_device(graph, node, decide)
        elif name == "cpu" or (is_accelerator(name) and hasattr(torch.Tensor, name)):
            _replace_move(graph, node, decide(name))


def _nodes(block: Any) -> Iterator[Any]:
    for node in block.nodes():
        yield node
        for inner in node.blocks():
            yield from _nodes(inner)


def _constant(graph: Any, node: Any, value: Any) -> Any:
    with graph.insert_point_guard(node):
        return graph.insertConstant(value)


def _fill_device(graph: Any, node: Any, decide: Decide) -> None:
    names = [argument.name for argument in parse_schema(node.schema()).arguments]
    if "device" not in names:
        return
    position = names.index("device")
    if node.inputsAt(position).node().mustBeNone():
        given = decide(None)
        if given is not None:
            node.replaceInput(position, _constant(graph, node, given))


def _replace_move(graph: Any, node: Any, given: RealDevice | None) -> None:
    if given is None:
        return
    with graph.insert_point_guard(node):
        arguments = [node.inputsAt(0), *(graph.insertConstant(value) for value in (given, None, False, False))]
        moved = graph.insertNode(graph.create("aten::to", arguments)).output()
    moved.setType(node.output().type())
    node.output().replaceAllUsesWith(moved)
    node.destroy()
