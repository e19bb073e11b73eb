"""Rows of performance_roadmap.md: patching, fallback, MLX, benchmarks and their targets."""

from __future__ import annotations

from tools.specification.row import CONTRADICTED, MET, NO_MAC, PARTLY, Row

CPU = "tests/fallback/test_cpu.py"
GUARDS = "tests/fallback/test_guards.py"
UNTOUCHED = "tests/test_session.py::test_functions_without_a_device_are_the_original_objects"

ROWS = (
    Row("P1", "Current Performance Issues", "Recurrent layers are not sent to the CPU.", MET,
        ("torchdevice ops --target mps --search lstm", f"{CPU}::test_packed_sequences_stay_packed")),
    Row("P2", "Smart Patching", "Only functions that take a device are patched; the others stay torch's own.", MET,
        (UNTOUCHED, f"{CPU}::test_what_the_target_has_is_not_touched_and_everything_comes_back")),
    Row("P3", "Smart Patching", "A request that needs no redirection returns early.", MET,
        ("tests/translate/test_decisions.py::test_settled_requests_are_those_that_nobody_and_nothing_redirects",
         "torchdevice bench calls")),
    Row("P4", "Smart Patching", "A matrix records which operators work on which device, and routes calls.", MET,
        ("tests/fallback/test_matrix.py::test_every_operator_has_its_place", "torchdevice ops")),
    Row("P5", "Smart Patching", "The overhead of patching is 90 % lower.", MET,
        ("torchdevice bench steps", "tests/bench/test_bench.py::test_the_documents_are_those_of_the_committed_figures"),
        "Against an empty `TorchFunctionMode`, the cheapest way to patch everything: a training step on an H200 1.000 "
        "instead of 1.23, on a CPU 0.997 instead of 1.07. Single factory calls cost 70 to 80 % less."),
    Row("P6", "Robust Fallback", "The target is tried first, by running the operator.", CONTRADICTED,
        (f"{GUARDS}::test_refused_dtypes_run_elsewhere_and_others_natively", "docs/fallback.md"),
        "The existence of a kernel is read from torch's dispatcher. This is exact and needs no failed call. Kernels "
        "that refuse some dtypes or sizes are run first."),
    Row("P7", "Robust Fallback", "Refusals are cached.", MET,
        (f"{GUARDS}::test_native_is_asked_once_for_what_it_refuses",)),
    Row("P8", "Robust Fallback", "Only refusals of the device lead to a fallback; other errors are raised.", MET,
        (f"{GUARDS}::test_what_counts_as_a_refusal", f"{CPU}::test_the_operators_own_errors_come_through")),
    Row("P9", "Robust Fallback", "The order is the target, MLX, the CPU.", MET,
        ("tests/fallback/test_matrix.py::test_mlx_is_asked_first_where_the_table_says_that_it_pays",)),
    Row("P10", "Robust Fallback", "Nothing is moved to the CPU without need.", MET,
        (f"{CPU}::test_arguments_that_share_a_storage_still_do",
         f"{CPU}::test_what_the_target_has_is_not_touched_and_everything_comes_back")),
    Row("P11", "Robust Fallback", "A fallback that is not possible raises a clear error.", MET,
        (f"{CPU}::test_off_refuses_and_says_where",)),
    Row("P12", "Robust Fallback", "Return types are kept: `PackedSequence`, named tuples, `out=`, in-place.", MET,
        (f"{CPU}::test_packed_sequences_stay_packed", f"{CPU}::test_named_tuples_stay_named_tuples",
         f"{CPU}::test_out_is_filled_and_resized", f"{CPU}::test_in_place_on_a_view_updates_its_base")),
    Row("P13", "Robust Fallback", "A fallback adds little time.", PARTLY, ("torchdevice bench fallbacks",),
        "On a virtual device it takes 0.94 of the time of torch's own fallback, and no measured operator is slower "
        "(docs/benchmarks.md). The limit is 0.85."),
    Row("P14", "MLX Integration", "MLX is found where it is installed.", MET,
        ("torchdevice doctor",
         "tests/fallback/test_matrix.py::test_mlx_is_asked_first_where_the_table_says_that_it_pays")),
    Row("P15", "MLX Integration", "Operators run on MLX and give torch's values.", MET,
        ("tests/fallback/test_mlx.py::test_every_rule_agrees_with_torch",
         "tests/fallback/test_mlx.py::test_what_is_not_exact_is_declined")),
    Row("P16", "MLX Integration", "MLX is used where it is faster, by measurement.", MET,
        ("tests/cli/test_ops.py::test_a_measurement_is_kept_and_removed",
         "tests/fallback/test_costs.py::test_from_which_size_on", "torchdevice calibrate")),
    Row("P17", "MLX Integration", "On Apple's GPU, MLX is faster than the CPU.", NO_MAC, ("torchdevice calibrate",),
        "MLX was measured on processors only."),
    Row("P18", "Performance Benchmarking", "Regressions of speed are caught automatically.", MET,
        ("tests/bench/test_work.py::test_a_step_and_an_activation",
         "tests/bench/test_work.py::test_a_step_on_a_virtual_device",
         "tests/bench/test_work.py::test_fallbacks",
         "tests/bench/test_work.py::test_more_work_is_found",
         "tests/bench/test_calls.py::test_no_call_is_dearer_than_before"),
        "`make test` compares a training step, fallbacks, a step on a virtual device and an activation with plain "
        "torch and a recorded baseline: function calls and operators are counted, and 15 % more is an error. Times "
        "vary too much for this. Single calls are compared in instructions if valgrind is installed and can read "
        "torch's library, which it cannot on ARM."),
    Row("P19", "Success Metrics", "Real workloads are 15 to 25 % faster.", PARTLY,
        ("torchdevice bench steps",),
        "A training step takes 19 % less time than under an empty `TorchFunctionMode` on an H200 and 7 % less on a "
        "CPU. No real program was timed, and the earlier version is not available for a comparison."),
    Row("P20", "Success Metrics", "99.9 % of operations succeed.", MET,
        ("tests/catalog/test_data.py::test_shares_against_plain_torch", "make conformance"),
        "Of the 4,745 catalogued functions that plain torch can call, 100 % on a CPU and a virtual `cuda` and 99.92 % "
        "on a virtual `mps`. Of the samples of torch's operator database on a virtual `mps`, 21,432 of 21,450 "
        "(99.92 %); of the int64 samples alone 99.59 %, because a guard for integer `linear` is off by default "
        "(docs/fallback.md)."),
)  # fmt: skip
