"""Rows of gap_analysis_strategy.md: how coverage of torch is kept honest."""

from __future__ import annotations

from tools.specification.row import MET, MISSING, PARTLY, SEMANTICS, Row

DATA = "tests/catalog/test_data.py"
SURFACE = "tests/catalog/test_surface.py"
CLASSES = "tests/catalog/test_status.py::test_gaps_have_a_class_each"

ROWS = (
    Row("G1", "Preparation", "The versions of torch that are supported are known and tested.", MET,
        ("tests/test_versions.py::test_a_release_is_called_tested_if_a_command_has_run_the_tests_on_it",
         "make matrix")),
    Row("G2", "Preparation", "A map says which module of ours answers for which part of torch.", MET,
        (f"{DATA}::test_the_map_is_printed_from_the_data",)),
    Row("G3", "Scope", "All namespaces that the document names are in the catalogue.", MET,
        (f"{SURFACE}::test_well_known_names", "torchdevice catalog --namespace torch.cuda")),
    Row("G4", "Scope", "What is used most comes first.", MET,
        (f"{DATA}::test_nothing_is_not_started", "tests/realworld/test_programs.py::test_runs_on_the_cpu"),
        "Every public name is called, so none waits; programs of others show what is used most."),
    Row("G5", "Scope", "`torch.distributed` is covered.", MET,
        ("tests/distributed/test_program.py::test_check",
         "tests/distributed/test_names.py::test_every_row_is_a_name_of_this_torch")),
    Row("G6", "Methodology", "Every public function, method and attribute is listed, by `__all__` and by name.", MET,
        (f"{SURFACE}::test_every_listed_name_is_there",
         f"{SURFACE}::test_every_overridable_function_and_tensor_attribute_is_there")),
    Row("G7", "Methodology", "The list is compared with what is patched, wrapped or simulated.", MET,
        (f"{DATA}::test_treatments_are_read_from_the_tables", "torchdevice catalog show torch.zeros")),
    Row("G8", "Methodology", "Replacements have torch's signatures.", MET,
        (f"{DATA}::test_every_replacement_has_torchs_signature",
         "tests/translate/test_points.py::test_a_replacement_looks_like_the_original")),
    Row("G9", "Methodology", "It is known which devices run a function natively.", PARTLY,
        ("torchdevice catalog show torch.add", "torchdevice ops --target mps"),
        "`ops` is right by operator; the catalogue guesses by name: `torch.add` only on mps, `torch.mm` only on cuda, "
        "`torch.linalg.eigh` native on mps, where it falls back."),
    Row("G10", "Methodology", "Values, side effects and global state are compared with plain torch.", MET,
        ("tests/catalog/test_compare.py::test_what_differs_is_seen", SEMANTICS,
         "tests/test_session.py::test_deactivate_restores_every_object_by_identity")),
    Row("G11", "Methodology", "Errors have torch's types and words.", MET,
        ("tests/hardening/test_junk.py::test_refusals_are_torch_s_own",
         "tests/translate/test_translation.py::test_bad_input_raises_what_plain_torch_raises")),
    Row("G12", "Methodology", "All parameters of a wrapped function are passed on.", MET,
        ("tests/translate/test_translation.py::test_values_dtypes_and_shapes_are_those_of_plain_torch",)),
    Row("G13", "Methodology", "Public functions with a device that nothing handles are found.", MET,
        ("tests/catalog/test_devices.py::test_a_function_that_a_new_torch_adds_is_found",
         "tests/catalog/test_devices.py::test_the_proofs_hold_now")),
    Row("G14", "Gap Identification", "Signature mismatches and unhandled functions are classes of the log.", MET,
        (CLASSES,)),
    Row("G15", "Gap Identification", "Differences are told apart: meant and documented, or to be fixed.", MET,
        (f"{DATA}::test_every_failure_is_explained_and_nothing_else_is",
         "tests/semantics/test_semantics.py::test_rows_of_known_differences_name_programs_and_each_once")),
    Row("G16", "Gap Identification", "Limits of MPS itself are documented as such.", PARTLY,
        (f"{DATA}::test_every_gap_is_in_the_log",),
        "The class \"limitation of the target\" holds CUDA-only names; MPS's own limits (nested tensors, storages that "
        "cannot be resized, FSDP) stand under divergences."),
    Row("G17", "Gap Identification", "What could be refined is recorded.", MISSING, (),
        "The log has no class for what works and should work better."),
    Row("G18", "Gap Identification", "The log has all columns that the document lists.", PARTLY, (CLASSES,),
        "There is no column for the module and none for what TorchDevice does instead; the proposed action is a stock "
        "phrase for each class."),
    Row("G19", "Gap Identification", "The log is complete and current.", PARTLY,
        (f"{DATA}::test_every_gap_is_in_the_log", f"{DATA}::test_the_pages_are_printed_from_the_data"),
        "Names without a right call, `quantize_*` on mps among them, cannot be in it; `kaiser_window` and `smm` stand "
        "in it, and work since (tests/fallback/test_foreign.py)."),
    Row("G20", "Action Plan", "Gaps are fixed by priority, each with tests that failed before.", MET,
        (CLASSES, "tests/fallback/test_foreign.py::test_on_mps",
         "tests/answers/test_programs.py::test_the_example_fails_without_us")),
    Row("G21", "Action Plan", "Tests cover CUDA to MPS, MPS itself, the CPU as fallback, and the override.", MET,
        ("tests/test_accelerated.py::test_on_a_virtual_device",)),
    Row("G22", "Maintenance", "A new torch is reviewed for new and changed functions.", PARTLY,
        ("tests/cli/test_catalog.py::test_json_and_difference", "torchdevice catalog diff old.json"),
        "The test compares within one process; default values that print an address differ between two, and docs hold "
        "no difference between releases."),
    Row("G23", "Maintenance", "Tests run in CI.", MET, ("make test",), "`.ci/run` is `make test`."),
    Row("G24", "Maintenance", "Feedback of users is collected.", PARTLY,
        ("torchdevice env", "tests/cli/test_commands.py::test_env_tells_versions_and_settings_but_no_paths"),
        "`env` prints what a bug report needs; there is no template for one and no page that says where it goes."),
)  # fmt: skip
