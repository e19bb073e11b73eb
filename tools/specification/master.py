"""Rows of master_roadmap.md that the other documents do not have: targets and advanced features."""

from __future__ import annotations

from tools.specification.row import MET, NO_MAC, PARTLY, Row

ROWS = (
    Row("M1", "Phase 1", "Speed is within 15 % of native MPS, fallbacks included.", NO_MAC,
        ("torchdevice bench fallbacks",), "The time of copies and waits on a virtual `mps` is not that of a Mac."),
    Row("M2", "Phase 2", "Paths, the matrix and translations are cached.", MET,
        ("tests/fallback/test_guards.py::test_native_is_asked_once_for_what_it_refuses",
         "tests/translate/test_decisions.py::test_settled_requests_are_those_that_nobody_and_nothing_redirects",
         "tests/fallback/test_costs.py::test_the_table_is_in_the_cache")),
    Row("M3", "Phase 3", "Real workloads are benchmarked.", PARTLY,
        ("torchdevice bench", "make realworld"),
        "One training step, an epoch of a DataLoader and single calls are timed. The values of the 68 real programs "
        "are compared; their time is not compared with plain torch."),
    Row("M4", "Phase 3", "Bottlenecks can be found by a profile.", MET,
        ("tests/cli/test_run.py::test_profile", "torchdevice run --profile")),
    Row("M5", "Phase 3", "A running program can be monitored.", MET,
        ("tests/cli/test_run_is_python.py::test_a_running_program_reports_on_sigusr1",)),
    Row("M6", "Phase 3", "Devices are allocated dynamically.", MET,
        ("tests/test_placement.py::test_requests_without_an_index_go_to_the_free_device",
         "tests/test_placement.py::test_it_is_chosen_once", "torchdevice run --place free"),
        "By free memory, once per process. Operators are placed by measured speed only where the target lacks them; "
        "docs/policy.md has the reasons. Several real GPUs were not at hand."),
    Row("M7", "Phase 3", "All 4,269 functions are implemented.", PARTLY,
        ("tests/catalog/test_surface.py::test_there_are_as_many_as_the_plan_counts", "torchdevice catalog"),
        "5,237 names are catalogued: 5,032 are complete, 31 are gaps, and 174 cannot be called here."),
    Row("M8", "Phase 3", "Every function of MLX is mapped.", MET,
        ("tests/catalog/test_mlx.py::test_both_sides_give_the_same_values",
         "tests/catalog/test_mlx.py::test_names_of_mlx_that_have_a_counterpart",
         "tests/catalog/test_mlx.py::test_every_name_of_mlx_has_a_counterpart_or_a_reason"),
        "Each has a pair that is run on both sides, or is in a table with the reason why none can be compared "
        "(docs/mlx.md)."),
    Row("M9", "Phase 3", "Test coverage is comprehensive.", MET,
        ("tests/test_upstream.py::test_what_passed_once_passes",
         "tests/catalog/test_data.py::test_nothing_is_not_started",
         "make test")),
    Row("M10", "Reliability Targets", "99 % of operations succeed.", MET,
        ("tests/catalog/test_data.py::test_shares_against_plain_torch",)),
)  # fmt: skip
