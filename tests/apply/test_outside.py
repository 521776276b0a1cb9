"""Classes of an installed library: they are replaced when the project's package is imported, and restored by undo."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_assistant.apply import apply_outside, is_installed, replaced_in, undo_outside
from kernel_assistant.errors import UsageError
from kernel_assistant.session.edits import FileSelection, find_place, undo_at
from kernel_assistant.store import Store
from tests.apply.conftest import STRICT, MakeResult, Python, snapshot, with_module

MAIN = '''"""A program."""
import sys
import vendor.layers
from vendor.layers import Gate

module = Gate().eval()
'''

USE = """
import copy, pickle
{line}
from vendor.layers import Gate
import kernels_for_vendor
torch.set_grad_enabled(False)
module, x = Gate().eval(), torch.randn(5, 64)
want = x * torch.sigmoid(x) * module.weight * module.scale

def served(call):
    kernels_for_vendor.reset_counters()
    torch.testing.assert_close(call(), want)
    return kernels_for_vendor.counters()["Gate"]

assert served(lambda: module(x)) == {{"kernel": 1, "fallbacks": {{}}}}
assert served(lambda: copy.deepcopy(module)(x))["kernel"] == 1
again = pickle.loads(pickle.dumps(module))
assert type(again) is Gate and served(lambda: again(x))["kernel"] == 1
compiled = torch.compile(torch.nn.Sequential(module), backend="aot_eager")
torch.testing.assert_close(compiled(x), want)
assert Gate.forward.__wrapped__ is not None
module.scale = 2.0
kernels_for_vendor.reset_counters()
module(x)
assert kernels_for_vendor.counters()["Gate"] == {{"kernel": 0, "fallbacks": {{"attributes": 1}}}}
print("served")
"""


@pytest.fixture
def library(tmp_path: Path, user_file: str) -> Path:
    path = tmp_path / "proj" / "site-packages" / "vendor" / "layers.py"
    path.parent.mkdir(parents=True)
    (path.parent / "__init__.py").write_text("")
    path.write_text(user_file)
    return path


@pytest.fixture
def project(library: Path) -> Path:
    """The folder of the project that has the library installed."""
    return library.parents[2]


@pytest.fixture
def main(project: Path) -> Path:
    """The project's program."""
    path = project / "main.py"
    path.write_text(MAIN)
    return path


@pytest.fixture
def result(make_result: MakeResult, user_file: str) -> Path:
    return with_module(make_result(user_file), "vendor.layers")


@pytest.mark.programs
@pytest.mark.slow
def test_importing_the_package_replaces_forward(library: Path, project: Path, result: Path, python: Python) -> None:
    assert is_installed(library) and not is_installed(project / "model.py")
    before = snapshot(project)
    applied = apply_outside(result, library, project)
    assert applied.import_line == "import kernels_for_vendor  # noqa: F401"
    assert library.read_bytes() == before["site-packages/vendor/layers.py"]
    assert python(STRICT + USE.format(line=applied.import_line), project) == "served\n"
    undone = undo_outside(applied.package)
    assert undone.restored and undone.classes == ("Gate",)
    assert snapshot(project) == before


@pytest.mark.programs
@pytest.mark.slow
def test_the_line_is_put_into_a_file_and_taken_out(
    library: Path, project: Path, main: Path, result: Path, python: Python
) -> None:
    dry = apply_outside(result, library, project, into=main, dry_run=True)
    assert "+import kernels_for_vendor" in dry.diff and not dry.package.exists() and main.read_text() == MAIN
    applied = apply_outside(result, library, project, into=main)
    lines = main.read_text().splitlines()
    assert lines[4] == "import kernels_for_vendor  # noqa: F401" and applied.import_line == ""
    apply_outside(result, library, project, into=main)
    assert main.read_text().splitlines() == lines
    assert python(STRICT + USE.format(line="from main import module as theirs"), project) == "served\n"
    main.write_text(main.read_text().replace("  # noqa: F401", "") + "# more\n")
    undo_outside(applied.package)
    assert main.read_text() == MAIN + "# more\n"
    assert not applied.package.exists()


def test_undo_of_the_file_that_imports_the_package_takes_it_back(
    library: Path, project: Path, main: Path, result: Path, tmp_path: Path
) -> None:
    store, applied = Store(tmp_path / "state"), apply_outside(result, library, project, into=main)
    for what in (str(main), f"{main}:Gate"):
        assert find_place(store, what).path == applied.package
    assert find_place(store, f"{main}:Other") == FileSelection(main, "Other")
    assert undo_at(store, find_place(store, str(main))).classes == ("Gate",)
    assert main.read_text() == MAIN and not applied.package.exists()
    assert find_place(store, str(main)) == FileSelection(main, "")


def test_an_upgraded_library_keeps_its_own_forward(library: Path, project: Path, result: Path, python: Python) -> None:
    apply_outside(result, library, project)
    library.write_text(library.read_text().replace("* self.scale)", "* self.scale + 1)"))
    code = """
import sys, warnings
sys.path[:0] = ["", "site-packages"]
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    import kernels_for_vendor
from vendor.layers import Gate
assert not hasattr(Gate.forward, "__wrapped__")
print([str(one.message) for one in said])
"""
    assert "has been edited since its kernels were verified" in python(code, project)
    with pytest.raises(UsageError, match="has changed since the job"):
        apply_outside(result, library, project)


def test_a_missing_library_is_said_once_and_does_no_harm(
    library: Path, project: Path, result: Path, python: Python
) -> None:
    apply_outside(result, library, project)
    library.unlink()
    code = 'import sys, warnings\nwarnings.simplefilter("always")\nsys.path.insert(0, "")\nimport kernels_for_vendor\n'
    assert python(code + 'print(kernels_for_vendor.counters()["Gate"]["kernel"])', project) == "0\n"


def test_what_is_in_the_way_stays(library: Path, project: Path, result: Path) -> None:
    (project / "kernels_for_vendor").mkdir()
    (project / "kernels_for_vendor" / "mine.py").write_text("")
    with pytest.raises(UsageError, match="in the way"):
        apply_outside(result, library, project)
    (project / "kernels_for_vendor" / "mine.py").unlink()
    (project / "kernels_for_vendor").rmdir()
    applied = apply_outside(result, library, project)
    plan = applied.package / "Gate.txt"
    plan.write_text(plan.read_text() + "\n")
    with pytest.raises(UsageError, match="changed by hand"):
        apply_outside(result, library, project)
    undone = undo_outside(applied.package)
    assert undone.kept == ("Gate.txt",) and not undone.restored and plan.exists()


@pytest.mark.programs
@pytest.mark.slow
def test_two_classes_of_one_name_have_a_package_each(
    library: Path, project: Path, main: Path, result: Path, make_result: MakeResult, user_file: str, python: Python
) -> None:
    other_file = library.parent / "other" / "layers.py"
    other_file.parent.mkdir()
    (other_file.parent / "__init__.py").write_text("")
    other_file.write_text(user_file)
    other = with_module(make_result(user_file), "vendor.other.layers")
    first = apply_outside(result, library, project, into=main)
    second = apply_outside(other, other_file, project, into=main)
    assert [first.package.name, second.package.name] == ["kernels_for_vendor", "kernels_for_vendor_other_layers"]
    assert replaced_in((project,), library) == {"Gate": first.package}
    assert replaced_in((project,), other_file) == {"Gate": second.package}
    code = """
import main, vendor.layers, vendor.other.layers
import kernels_for_vendor, kernels_for_vendor_other_layers
torch.set_grad_enabled(False)
for layers, count in ((vendor.layers, 1), (vendor.other.layers, 2)):
    for _ in range(count):
        layers.Gate().eval()(torch.randn(5, 64))
print(*(one.counters()["Gate"]["kernel"] for one in (kernels_for_vendor, kernels_for_vendor_other_layers)))
"""
    assert python(STRICT + code, project) == "1 2\n"
    undo_outside(first.package)
    assert "import kernels_for_vendor_other_layers" in main.read_text()
    # Applied again, it stays in the package where it is, although the other name is free now.
    assert apply_outside(other, other_file, project, into=main).package == second.package
    undo_outside(second.package)
    assert main.read_text() == MAIN and not list(project.glob("kernels_for_*"))


@pytest.mark.programs
@pytest.mark.slow
def test_classes_of_one_library_share_a_package(
    library: Path, project: Path, main: Path, result: Path, make_result: MakeResult, user_file: str, python: Python
) -> None:
    text = user_file.replace("class Gate(", "class Port(").replace("Gate", "Port")
    (library.parent / "ports.py").write_text(text)
    other = with_module(make_result(text, class_name="Port"), "vendor.ports")
    apply_outside(result, library, project, into=main)
    applied = apply_outside(other, library.parent / "ports.py", project)
    code = """
import kernels_for_vendor, vendor.layers, vendor.ports
torch.set_grad_enabled(False)
for cls in (vendor.layers.Gate, vendor.ports.Port):
    cls().eval()(torch.randn(5, 64))
print(*sorted((name, found["kernel"]) for name, found in kernels_for_vendor.counters().items()))
"""
    assert python(STRICT + code, project) == "('Gate', 1) ('Port', 1)\n"
    assert undo_outside(applied.package, "Port").classes == ("Port",)
    assert not (applied.package / "Port").exists() and "import kernels_for_vendor" in main.read_text()
    assert python(STRICT + code, project) == "('Gate', 1)\n"
    undo_outside(applied.package)
    assert not applied.package.exists() and main.read_text() == MAIN


def test_a_projects_packages_are_found_by_the_librarys_file(
    library: Path, project: Path, result: Path, tmp_path: Path
) -> None:
    (project / "scripts").mkdir()
    assert replaced_in((project,), library) == {}
    applied = apply_outside(result, library, project / "scripts")
    assert replaced_in((project,), library) == {"Gate": applied.package}
    assert replaced_in((project,), library.parent / "other.py") == {}
    assert replaced_in((project,), tmp_path / "layers.py") == {}
    assert replaced_in((tmp_path / "elsewhere",), library) == {}
    (applied.package / "manifest.json").write_text("{}")
    assert replaced_in((project,), library) == {}
