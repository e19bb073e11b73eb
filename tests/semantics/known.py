"""Programs that differ from plain torch on a machine with CUDA, each with its reason.

A reason begins with `design` (the docs promise it), `torch` (its own code for the target does it) or `defect`.
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
            "checkpoints.the_location_that_a_function_is_told",
        ),
    ),
    Known(
        "design: a tensor is the target's own, and under accelerate tensors of the host are too",
        (*NOT_ON_CUDA, Mode("cuda", "accelerate")),
        ("attributes.is_cuda", "attributes.type_by_name"),
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
        "defect: arrays and tensors do not share memory",
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
        "defect: a move between host and device gives the same tensor where both are the CPU",
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
        "defect: a move to the device gives the same tensor where the tensor is there already",
        ONE_DEVICE,
        ("spelling.a_moved_parameter_is_no_leaf", "transfers.cuda_is_a_copy", "transfers.to_the_device_is_a_copy"),
    ),
    Known(
        "defect: shared memory of the host is not shared",
        ACCELERATED,
        ("processes.a_child_writes_into_shared_memory", "processes.a_shared_module", "processes.share_memory_is_told"),
    ),
    Known(
        "defect: the state of the host's generator is not that of the generator that is drawn from",
        ACCELERATED,
        ("checkpoints.random_states_are_saved", "rng.random_module_states", "rng.the_state_of_the_host_comes_back"),
    ),
    Known(
        "defect: a state that was loaded lies on the device",
        (Mode("cuda", "accelerate"),),
        ("checkpoints.random_states_come_back_mapped_to_the_host", "checkpoints.the_states_of_all_devices_are_saved"),
    ),
    Known(
        "defect: autocast of the CPU and of the device are one switch",
        ONE_DEVICE,
        ("amp.the_host_disabled_inside_the_device",),
    ),
    Known(
        "defect: is_pinned is False",
        (*NOT_ON_CUDA, Mode("cuda", "accelerate")),
        ("attributes.pinned", "data.pinned_batches_say_so"),
    ),
    Known(
        "defect: a class of tensors of the host refuses a tensor that was redirected",
        ACCELERATED,
        ("attributes.a_float_tensor_of_a_tensor",),
    ),
    Known("defect: the operator is missing", ON_MPS + ON_CUDA, ("complex_and_fft.kaiser_window",)),
    Known("defect: strided nested tensors are refused", ON_MPS, ("sparse_and_nested.nested_strided",)),
    Known("defect: torch refuses foreach=True on MPS", ON_MPS, ("optim.clipping_by_norm_foreach",)),
    Known(
        "defect: properties of a device that is not there are answered",
        NOT_ON_CUDA,
        ("cuda_queries.properties_of_a_device_that_is_not_there",),
    ),
    Known(
        "defect: __torch_function__ is given torch's function, and the program's name is that of the replacement",
        EVERYWHERE,
        ("subclasses.a_function_mode_changes_results", "subclasses.table_rand_like", "subclasses.table_zeros_like"),
    ),
    Known(
        "defect: __torch_function__ sees .cuda() as .to(), or a call of torch.device before it",
        EVERYWHERE,
        ("subclasses.a_function_mode_sees_cuda",),
    ),
    Known("defect: .cuda() of a packed sequence is given None", (Mode("cuda", "portable"),), ("spelling.packed",)),
    Known("defect: __torch_function__ sees .cpu() as .to()", ACCELERATED, ("subclasses.table_cpu",)),
]


def reasons(mode: Mode) -> dict[str, str]:
    """By the names of the programs that differ in this mode."""
    return {name: row.reason for row in ROWS if mode in row.modes for name in row.programs}
