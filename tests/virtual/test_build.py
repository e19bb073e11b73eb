"""Which compiler builds the library, and what of its surroundings decides the result."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from torchdevice.errors import ConfigError, VirtualDeviceUnavailable
from torchdevice.virtual import build

pytestmark = pytest.mark.processes
COMPILER = shutil.which("c++") or "c++"


def test_a_compiler_with_arguments_is_used_with_them(
    cache: Path, tiny: build.Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", COMPILER)
    plain = build.target(tiny)
    monkeypatch.setenv("CXX", f"env '{COMPILER}' -DANSWER=7")
    (build.HERE / "tiny.cpp").write_text(
        'extern "C" __attribute__((visibility("default"))) int answer() { return ANSWER; }\n'
    )
    assert build.load(tiny).answer() == 7
    with_options = build.target(tiny)
    assert with_options.compiler == f"{plain.compiler} {COMPILER} -DANSWER=7"
    assert with_options.name != with_options._replace(compiler=plain.compiler).name


@pytest.mark.parametrize("given", ["no-such-compiler -O3", "/no/such/compiler"])
def test_a_compiler_that_is_not_there_is_refused(
    given: str, cache: Path, tiny: build.Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", given)
    with pytest.raises(VirtualDeviceUnavailable, match=r"looked for CXX"):
        build.build(tiny)


def test_a_command_that_is_none_is_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "g++ -DX='")
    with pytest.raises(ConfigError, match=r"CXX=.*No closing quotation.*\nHint: quote it"):
        build.find_compiler()


def test_what_would_change_the_result_unseen_is_kept_from_the_compiler(
    cache: Path, tiny: build.Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "planted").mkdir()
    (tmp_path / "planted" / "answer.h").write_text("#define ANSWER 666\n")
    (build.HERE / "tiny.cpp").write_text(
        "#if __has_include(<answer.h>)\n#include <answer.h>\n#else\n#define ANSWER 42\n#endif\n"
        'extern "C" __attribute__((visibility("default"))) int answer() { return ANSWER; }\n'
    )
    for name in build.CHANGES_RESULT - {"DEPENDENCIES_OUTPUT", "SUNPRO_DEPENDENCIES"}:
        monkeypatch.setenv(name, str(tmp_path / "planted"))
    monkeypatch.setenv("DEPENDENCIES_OUTPUT", str(tmp_path / "written"))
    assert build.load(tiny).answer() == 42
    assert not (tmp_path / "written").exists()
