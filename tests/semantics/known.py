"""Programs that differ from plain torch on a machine with CUDA, each with its reason.

A reason begins with `design` (the docs promise it) or `torch` (its own code for the target does it).
A row that is no longer true fails.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.semantics.modes import MODES, Mode

EVERYWHERE = tuple(MODES)
ON_CPU = tuple(mode for mode in MODES if mode.device == "cpu")
ON_MPS = tuple(mode for mode in MODES if mode.device == "mps:real")
ON_CUDA = tuple(mode for mode in MODES if mode.device == "cuda")
NOT_ON_CUDA = ON_CPU + ON_MPS
ACCELERATED = tuple(mode for mode in MODES if mode.device != "cpu" and mode.policy == "accelerate")
ONE_DEVICE = ON_CPU + ACCELERATED  # host and device are the same one


@dataclass(frozen=True)
class Known:
    reason: str
    modes: tuple[Mode, ...]
    programs: tuple[str, ...]


ROWS = [
    Known(
        "design: a device is the target's own, and says so",
        NOT_ON_CUDA,
        (
            "attributes.a_device_tells_its_name",
            "attributes.repr_of_a_device_tensor",
        ),
    ),
    Known(
        "design: a tensor is the target's own, and under accelerate tensors of the host are too",
        (*NOT_ON_CUDA, Mode("cuda", "accelerate")),
        ("attributes.is_cuda", "attributes.type_by_name"),
    ),
    Known(
        "design: a device is the target's own, and under accelerate it is saved as the CPU",
        (*NOT_ON_CUDA, Mode("cuda", "accelerate")),
        ("checkpoints.the_location_that_a_function_is_told",),
    ),
    Known(
        "design: host and device are one, so a tensor of the one is a tensor of the other",
        ONE_DEVICE,
        (
            "amp.the_host_is_not_cast_by_the_device",
            "attributes.get_device_of_a_host_tensor",
            "attributes.is_cpu",
            "errors.numpy_of_a_device_tensor",
            "errors.two_devices_in_one_operator",
            "rng.the_seed_of_the_device_leaves_the_host_alone",
        ),
    ),
    Known("torch: CUDA multiplies no matrices of integers", ON_CUDA, ("linear_algebra.integer_products",)),
    Known("design: the CPU's autocast stands for CUDA's, so both are on", ON_CPU, ("amp.the_old_name",)),
    Known(
        "design: accelerate redirects requests for the CPU and for no device",
        ACCELERATED,
        (
            "attributes.a_host_device_tells_its_name",
            "attributes.repr_of_a_host_tensor",
            "checkpoints.map_location_to_the_host",
            "data.batches_lie_on_the_host",
            "transfers.a_module_returns_to_the_host",
            "transfers.cpu_of_a_host_tensor_is_itself",  # .cpu() of what lies on the accelerator is a copy
        ),
    ),
    Known(
        "design: torch.device is a class whose calls give real devices",
        EVERYWHERE,
        ("python_features.the_class_of_a_device",),
    ),
    Known(
        "design: an index that the target lacks is folded onto one that it has",
        EVERYWHERE,
        ("errors.a_device_that_is_not_there",),
    ),
    Known("design: MPS has no float64", ON_MPS, ("promotion.float64_on_the_device",)),
    Known("torch: deepcopy clones tensors of MPS one by one", ON_MPS, ("copying.deepcopy_keeps_aliases",)),
    Known(
        "torch: its fast path, which writes zeros at padded places, does not know MPS",
        ON_MPS,
        ("modules.an_encoder_in_evaluation",),
    ),
    Known(
        "design: an accelerator and an array do not share memory: a warning, or an array that is read-only",
        ACCELERATED,
        (
            "numpy_sharing.a_host_tensor_follows_numpy",
            "numpy_sharing.as_tensor_of_an_array_shares",
            "numpy_sharing.asarray_shares_an_array",
            "numpy_sharing.from_numpy_follows_the_array",
            "numpy_sharing.frombuffer_shares",
            "numpy_sharing.numpy_follows_a_host_tensor",
            "numpy_sharing.the_array_follows_from_numpy",
        ),
    ),
    Known(
        "design: a move between host and device gives the same tensor where both are the CPU; a warning if it shows",
        ON_CPU,
        (
            "numpy_sharing.an_array_moved_to_the_device_is_a_copy",
            "numpy_sharing.an_array_of_a_device_tensor_is_a_copy",
            "numpy_sharing.as_tensor_with_a_device_copies",
            "transfers.cpu_of_a_device_tensor_is_a_copy",
            "transfers.the_best_weights_are_a_snapshot",
            "transfers.to_cpu_of_a_device_tensor_is_a_copy",
        ),
    ),
    Known(
        "design: a move to the device gives the same tensor where it is there already, with a warning if it shows",
        ONE_DEVICE,
        ("spelling.a_moved_parameter_is_no_leaf", "transfers.cuda_is_a_copy", "transfers.to_the_device_is_a_copy"),
    ),
    Known(
        "torch: memory of an accelerator says that it is shared before it is",
        ACCELERATED,
        ("processes.share_memory_is_told",),
    ),
    Known(
        "torch: nested tensors of the strided layout exist on the CPU, CUDA and XPU only; none can be moved to MPS",
        (Mode("mps:real", "portable"),),
        ("sparse_and_nested.nested_strided",),
    ),
]


def reasons(mode: Mode) -> dict[str, str]:
    """By the names of the programs that differ in this mode."""
    return {name: row.reason for row in ROWS if mode in row.modes for name in row.programs}
