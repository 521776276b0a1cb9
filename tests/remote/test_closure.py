"""Tests which files are sent: those that a module imports, those that `ship` names, but never a secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_assistant.errors import UsageError
from kernel_assistant.remote.closure import find_closure
from kernel_assistant.remote.data_files import looks_secret
from kernel_assistant.source.build import import_location
from tests.common.tasks import task_of


@pytest.fixture
def tree(tmp_path):
    """A function: files by relative name → the task for one of them."""

    def make(files, path, **fields):
        for name, text in files.items():
            file = tmp_path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        module, folder = import_location(tmp_path / path)
        fields |= {"search_path": (folder,), "module_name": module}
        return task_of(tmp_path / path, (tmp_path / path).read_text(), **fields)

    return make


def test_file_without_imports_travels_alone(tree):
    found = find_closure(tree({"net.py": "import torch, os\n", "other.py": ""}, "net.py"))
    assert list(found.files) == ["net.py"]
    assert (found.path, found.search_path) == ("net.py", (".",))


def test_text_of_the_task_counts_and_not_the_disk(tree, tmp_path):
    task = tree({"net.py": "import a\n", "a.py": "", "b.py": ""}, "net.py")
    (tmp_path / "net.py").write_text("import b\n")
    found = find_closure(task)
    assert set(found.files) == {"net.py", "a.py"}
    assert found.files["net.py"] == b"import a\n"


IMPORTED = {
    "circular imports": {"net.py": "import a\n", "a.py": "import net\n"},
    "names given to import_module": {
        "net.py": "import importlib\nimportlib.import_module('a.b')\n__import__('c')\n",
        **dict.fromkeys(("a/__init__.py", "a/b.py", "c.py"), ""),
    },
    "a file that does not parse": {"net.py": "import broken\n", "broken.py": "def (:\n"},
}


@pytest.mark.parametrize("files", IMPORTED.values(), ids=IMPORTED)
def test_what_is_imported_travels(tree, files):
    assert find_closure(tree(files, "net.py")).files.keys() == files.keys()


def test_relative_imports_and_the_packages_on_the_way(tree):
    files = {
        "top/__init__.py": "from .config import SIZE\n",
        "top/config.py": "SIZE = 1\n",
        "top/inner/__init__.py": "",
        "top/inner/net.py": "from . import parts\nfrom ..common.maths import f\nfrom .parts import g\n",
        "top/inner/parts.py": "",
        "top/common/__init__.py": "",
        "top/common/maths.py": "def late():\n    import top.common.deep.far\n",
        "top/common/deep/far.py": "",
        "top/unused.py": "",
    }
    found = find_closure(tree(files, "top/inner/net.py"))
    assert set(found.files) == set(files) - {"top/unused.py"}
    assert found.path == "top/inner/net.py"


@pytest.mark.parametrize("place", ["src/library", "library"])
def test_project_installed_in_place_is_found_from_its_root(tree, place):
    files = {"pyproject.toml": "", "scripts/net.py": "import library.ops\n"}
    files |= {f"{place}/__init__.py": "", f"{place}/ops.py": "", "torch/__init__.py": "", "json.py": ""}
    files["scripts/net.py"] += "import torch, json\n"
    found = find_closure(tree(files, "scripts/net.py"))
    assert set(found.files) == {"scripts/net.py", f"{place}/__init__.py", f"{place}/ops.py"}
    assert found.search_path == ("scripts", place.rpartition("/")[0] or ".")


def test_named_data_travels_and_secrets_stay(tree, tmp_path):
    files = {
        "pyproject.toml": "",
        "net.py": "",
        "data/table.csv": "1",
        "data/deep/x.bin": "2",
        "data/.env": "PASSWORD=1",
        "data/server.pem": "key",
        "data/__pycache__/x.pyc": "",
    }
    task = tree(files, "net.py")
    (tmp_path / "data/innocent.txt").symlink_to("/etc/hostname")
    (tmp_path / "data/harmless.txt").symlink_to(tmp_path / "data/.env")
    found = find_closure(task, ("data", "*.toml"))
    assert set(found.files) == {"net.py", "pyproject.toml", "data/table.csv", "data/deep/x.bin"}
    assert set(found.left_out) == {"data/.env", "data/server.pem", "data/innocent.txt", "data/harmless.txt"}


@pytest.mark.parametrize("name", [".env", ".env.local", "prod.env", "id_rsa", ".git/config", "a/.ssh/known", "My.KEY"])
def test_looks_secret(name):
    assert looks_secret(Path(name))


def test_ordinary_names_do_not_look_secret():
    assert not looks_secret(Path("environment/tokens.py"))


@pytest.mark.parametrize("pattern", ["/etc/hostname", "../other", "a/../../b", "nothing*"])
def test_pattern_that_leads_out_or_nowhere(tree, pattern):
    with pytest.raises(UsageError, match="ship: "):
        find_closure(tree({"pyproject.toml": "", "net.py": ""}, "net.py"), (pattern,))


def test_too_much_is_refused_with_the_largest_named(tree, tmp_path):
    task = tree({"pyproject.toml": "", "net.py": ""}, "net.py")
    with (tmp_path / "weights.bin").open("wb") as file:
        file.truncate((256 << 20) + 1)
    with pytest.raises(UsageError, match=r"largest is weights\.bin"):
        find_closure(task, ("weights.bin",))


def test_installed_package_is_refused_unless_recorded(tree, tmp_path):
    path = "lib/python3/site-packages/package/net.py"
    files = {"lib/python3/site-packages/package/__init__.py": "", path: "", "recording/inputs-0.pt": "1"}
    with pytest.raises(UsageError, match="installed package"):
        find_closure(tree(files, path))
    found = find_closure(tree(files, path, installed=True, recording=str(tmp_path / "recording")))
    assert (set(found.files), found.path, found.recording) == ({".recording/inputs-0.pt"}, "", ".recording")
