"""What `--pool` takes."""

from __future__ import annotations

import pytest

from kernel_assistant.errors import UsageError
from kernel_assistant_training.ppo.pool_places import Place, places


def test_places_of_every_kind():
    assert places(["local"]) == [Place("local")]
    assert places(["local:2", "ray:auto"]) == [Place("local", workers=2), Place("ray", "auto")]
    assert places(["ssh://me@box"]) == [Place("ssh", "me@box")]
    assert places(["ssh://a,me@b?workers=8&python=/opt/venv/bin/python"]) == [
        Place("ssh", "a", 8, "/opt/venv/bin/python"),
        Place("ssh", "me@b", 8, "/opt/venv/bin/python"),
    ]
    assert places(["ssh://me@box:2222"]) == [Place("ssh", "ssh://me@box:2222")]
    assert places(["ray://head:10001?workers=16"]) == [Place("ray", "ray://head:10001", 16)]
    assert places([]) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["box"], "--pool box names no place"),
        (["local:"], "names no place"),
        (["local:two"], "'two' is no number of workers"),
        (["local?workers=2"], "names no place"),
        (["ssh://"], "names no place"),
        (["ssh://-oProxyCommand=touch"], "names no place"),
        (["ssh://a b"], "names no place"),
        (["ssh://box?gpus=2"], "gpus is no option of a place"),
        (["ssh://box?workers=all"], "'all' is no number"),
        (["ssh://box?workers"], "names no place"),
        (["ray://"], "names no place"),
        (["ray:auto?python=/x"], "Ray chooses the interpreter"),
        (["ssh://box", "ssh://box?workers=2"], "names box twice"),
        (["local:1", "local:2"], "names local twice"),
    ],
)
def test_what_is_none(words, said):
    with pytest.raises(UsageError, match=said):
        places(words)
