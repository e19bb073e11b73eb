"""Rows of implementation_roadmap.md: the priority of functions, and how their status is tracked."""

from __future__ import annotations

from tools.specification.row import CONTRADICTED, MET, NO_MAC, Row

TRANSLATION = "tests/translate/test_translation.py"

ROWS = (
    Row("I1", "Core Device Functions", "`torch.device()` is translated and stays a class.", MET,
        (f"{TRANSLATION}::test_device_is_still_a_class",
         "tests/translate/test_decisions.py::test_devices_that_are_only_named")),
    Row("I2", "Core Device Functions", "`tensor`, `zeros`, `ones`, `empty` and other factories are translated.", MET,
        ("tests/translate/test_points.py::test_every_function_that_takes_a_device_is_translated",
         f"{TRANSLATION}::test_every_request_ends_on_the_cpu")),
    Row("I3", "Core Device Functions", "`set_default_device` and `get_default_device` use the target.", MET,
        ("tests/accelerated/test_coherence.py::test_a_default_device_that_the_user_sets_wins",
         f"{TRANSLATION}::test_default_device_costs_no_mode")),
    Row("I4", "Core Device Functions", "`torch.cuda.is_available()` and `device_count()` describe the target.", MET,
        ("tests/answers/test_answers.py::test_user_code_is_told_that_cuda_is_there_and_torch_is_not",)),
    Row("I5", "Core Device Functions", "`torch.mps.is_available()` describes the target.", CONTRADICTED,
        ("tests/answers/test_answers.py::test_a_program_that_knows_several_kinds_of_device_finds_one",
         "tests/answers/test_answers.py::test_code_for_mps_alone_finds_it_on_a_virtual_one", "docs/masquerade.md"),
        "It tells the truth on a host without MPS. A program that looks for several kinds of device must find one. If "
        "it found both, it could take its poorer branch for MPS on a CUDA machine. `torchdevice run --as mps` gives "
        "code that asks for `mps` only such a device."),
    Row("I6", "Status Tracking", "A script marks a function as complete.", CONTRADICTED,
        ("tests/catalog/test_status.py::test_status_is_computed", "docs/cli.md"),
        "A status is computed from the results of runs and cannot be set by hand. `torchdevice catalog note` stores "
        "remarks."),
    Row("I7", "Status Tracking", "No function's compatibility is unknown.", MET,
        ("tests/catalog/test_data.py::test_nothing_is_not_started", "torchdevice catalog --status in_progress"),
        "No entry is `in_progress`. Entries that cannot be called here have a reason."),
    Row("I8", "Success Metrics", "Benchmarks are established.", MET,
        ("torchdevice bench", "tests/bench/test_bench.py::test_the_documents_are_those_of_the_committed_figures")),
    Row("I9", "Success Metrics", "Real applications were tried.", MET,
        ("make realworld", "tests/realworld/test_programs.py::test_runs_on_the_cpu"),
        "68 programs; 67 pass on a CPU, 68 on a virtual `mps` (docs/realworld.md)."),
    Row("I10", "File Structure", "Sources lie in `core/` and `ops/`.", CONTRADICTED,
        ("tests/test_architecture.py::test_the_map_of_the_whole_names_every_module_and_package",
         "docs/architecture.md"),
        "The layout in the documents is that of an earlier version. The packages are divided by purpose (policy, "
        "translation, answers, fallback), and a checker enforces the direction of imports."),
    Row("I11", "Success Criteria", "CUDA code runs on MPS unedited.", MET,
        ("tests/test_accelerated.py::test_on_a_virtual_device",
         "torchdevice run --virtual mps:real examples/train_cuda.py"),
        "Verified on a virtual `mps` that raises the errors of a Mac."),
    Row("I12", "Success Criteria", "The same on a Mac.", NO_MAC, (), "It was not tested on a Mac."),
    Row("I13", "Success Criteria", "Checks of the device's type pass (`x.is_cuda`).", CONTRADICTED,
        ("tests/semantics/programs/attributes.py::is_cuda",
         "tests/virtual/test_programs.py::test_collectives_and_ddp", "docs/limits.md"),
        "Translated tensors report their real device. Code that requires the type `cuda` needs a device of that type: "
        "`torchdevice run --as cuda` or `--virtual cuda`."),
    Row("I14", "Success Criteria", "Devices cause no crashes.", MET,
        ("tests/hardening/test_junk.py::test_the_policy_never_fails_and_never_invents", "make fuzz")),
    Row("I15", "Success Criteria", "Speed is within 10 % of native MPS.", NO_MAC, ("torchdevice bench steps",),
        "On a CPU, a virtual device and an H200 a training step takes 0.99 to 1.01 of plain torch's time."),
    Row("I16", "Success Criteria", "Documentation follows the code.", MET,
        ("make docs", "tests/fallback/test_matrix.py::test_the_pages_are_printed_from_the_tables",
         "tests/answers/test_surface.py::test_the_document_is_printed_from_the_table")),
)  # fmt: skip
