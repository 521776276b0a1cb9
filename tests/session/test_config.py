"""Settings: five layers, and the settings that a repository may not make."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_assistant.config import documentation, parse_seconds, resolve, trace
from kernel_assistant.errors import UsageError


@pytest.fixture
def environ(tmp_path):
    return {"KERNEL_ASSISTANT_HOME": str(tmp_path / "home")}


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_each_layer_goes_over_the_one_before(tmp_path, environ):
    project = tmp_path / "project"
    assert resolve(project, {}, environ)[0].budget == 120.0
    write(project / "pyproject.toml", '[tool.kernel-assistant]\nbudget = "1m"\npolicy = "generator"\n')
    assert resolve(project / "src" / "model.py", {}, environ)[0].budget == 60.0
    write(tmp_path / "home" / "config" / "config.toml", 'budget = 50\nsandbox = "landlock"\n')
    assert resolve(project, {}, environ)[0].budget == 60.0
    assert resolve(tmp_path, {}, environ)[0].budget == 50.0
    environ["KERNEL_ASSISTANT_BUDGET"] = "40s"
    assert resolve(project, {}, environ)[0].budget == 40.0
    settings, warnings = resolve(project, {"budget": "30", "target": None}, environ)
    assert (settings.budget, settings.target, warnings) == (30.0, "auto", [])
    assert (settings.policy, settings.sandbox) == ("generator", "landlock")


def test_one_variable_moves_everything(tmp_path, environ):
    settings, _ = resolve(None, {}, environ)
    assert {settings.state_dir.parent, settings.cache_dir.parent, settings.runtime_dir.parent} == {tmp_path / "home"}


@pytest.mark.parametrize(
    "key", ["sandbox", "python", "endpoint", "host", "state_dir", "state-dir", "cache_dir", "runtime_dir"]
)
def test_a_repository_cannot_set_what_is_the_users(tmp_path, environ, key):
    write(tmp_path / "pyproject.toml", f'[tool.kernel-assistant]\n{key} = "none"\n')
    settings, warnings = resolve(tmp_path, {}, environ)
    assert settings == resolve(None, {}, environ)[0]
    assert len(warnings) == 1 and repr(key) in warnings[0] and "\n" not in warnings[0]


def test_tables_of_other_parts_are_left_alone(tmp_path, environ):
    write(tmp_path / "pyproject.toml", '[tool.kernel-assistant.modules."m.py:Net"]\ninputs = "()"\n')
    assert resolve(tmp_path, {}, environ)[1] == []


def test_unknown_names_are_bad_use_with_file_line_and_what_was_meant(tmp_path, environ):
    user = tmp_path / "home" / "config" / "config.toml"
    write(user, "# mine\n\nbugdet = 3\n")
    with pytest.raises(UsageError) as caught:
        resolve(None, {}, environ)
    assert caught.value.cause == f"{user}:3: unknown setting 'bugdet' (did you mean budget?)"
    user.unlink()
    project = tmp_path / "pyproject.toml"
    write(project, '[project]\nname = "x"\n[tool.kernel-assistant]\nfail-unter = 1\n')
    with pytest.raises(UsageError) as caught:
        resolve(tmp_path, {}, environ)
    assert caught.value.cause == f"{project}:4: unknown setting 'fail_unter' (did you mean fail_under?)"


def test_values_that_do_not_fit_name_the_line_too(tmp_path, environ):
    project = tmp_path / "pyproject.toml"
    write(project, '[tool.kernel-assistant]\nbudget = "2m"\ntarget = "cudo"\n')
    with pytest.raises(UsageError) as caught:
        resolve(tmp_path, {}, environ)
    assert caught.value.cause.startswith(f"{project}:3: target = 'cudo' does not fit")
    assert caught.value.cause.endswith("(did you mean cuda?)")


def test_every_value_knows_where_it_comes_from(tmp_path, environ):
    write(tmp_path / "home" / "config" / "config.toml", 'sandbox = "landlock"\ntarget = "cuda"\n')
    write(tmp_path / "p" / "pyproject.toml", '[tool.kernel-assistant]\n\nfail-under = 1.05\ntarget = "cpu"\n')
    environ["KERNEL_ASSISTANT_FREE_WINS"] = "no"
    settings, origins, _ = trace(tmp_path / "p", {"detach": True}, environ)
    found = {name: (origins[name].layer, Path(origins[name].where).name) for name in documentation()}
    assert found["sandbox"] == ("user file", "config.toml:1")
    assert found["fail_under"] == ("project", "pyproject.toml:3")
    assert found["target"] == ("project", "pyproject.toml:4")
    assert found["free_wins"] == ("environment", "KERNEL_ASSISTANT_FREE_WINS")
    assert found["detach"] == ("option", "")
    assert found["budget"] == ("default", "")
    assert found["state_dir"] == found["runtime_dir"] == ("environment", "KERNEL_ASSISTANT_HOME")
    assert (settings.fail_under, settings.free_wins, settings.detach) == (1.05, False, True)


WRONG = {"budget": ("soon", "-1", "nan", "inf"), "target": ("tpu",), "numerics": ("x",)}
WRONG |= {"fail_under": ("0",), "free_wins": ("maybe",)}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_values_that_do_not_fit_are_bad_use(environ, name, value):
    with pytest.raises(UsageError, match=name):
        resolve(None, {name: value}, environ)
    with pytest.raises(UsageError, match=f"KERNEL_ASSISTANT_{name.upper()}"):
        resolve(None, {}, {**environ, f"KERNEL_ASSISTANT_{name.upper()}": value})


def test_a_file_that_is_not_toml_is_bad_use(tmp_path, environ):
    write(tmp_path / "home" / "config" / "config.toml", "= 3")
    with pytest.raises(UsageError, match=r"config\.toml"):
        resolve(None, {}, environ)


def test_durations():
    assert [parse_seconds(text) for text in ("90", "120s", " 2M ", "1h", 0.5)] == [90.0, 120.0, 120.0, 3600.0, 0.5]


def test_every_setting_has_its_line():
    assert all(line and "\n" not in line for line in documentation().values())
