"""Trajectories on disk, and a run's folder: their state after a crash or a full disk."""

from __future__ import annotations

import resource
import signal
from dataclasses import replace

import pytest
import torch

from kernel_assistant.errors import StoreError, UsageError
from kernel_assistant_training.architecture import SMALL, Llama
from kernel_assistant_training.folder import load_folder, save_folder
from kernel_assistant_training.ppo.model.actor import Actor
from kernel_assistant_training.ppo.run_folder import PpoRunFolder, PpoState
from kernel_assistant_training.ppo.store import TrajectoryStore
from tests.ppo.trajectories import trajectory

ASKED = {"stage": "ppo_single", "seed": 0}


def some(iteration, seed):
    return trajectory(range(8), [(2, 3)], 1.0, logprobs=[-0.5, -1.5, -0.25], iteration=iteration, seed=seed)


def test_iterations_have_files_of_their_own_and_go_on_behind_a_crash(tmp_path):
    store = TrajectoryStore(tmp_path)
    for iteration, seed in ((0, 2), (0, 1), (1, 1)):
        store.add(some(iteration, seed))
    store.close()
    file = tmp_path / "trajectories-000001.jsonl"
    file.write_bytes(file.read_bytes() + file.read_bytes()[:40])
    again = TrajectoryStore(tmp_path)
    assert [one.seed for one in again.read(1)] == [1]
    again.add(some(1, 2))
    again.close()
    assert again.iterations() == [0, 1]
    assert [(one.iteration, one.seed) for one in again.all()] == [(0, 1), (0, 2), (1, 1), (1, 2)]
    assert next(again.all()) == some(0, 1)
    assert not list(again.read(7))


@pytest.fixture
def small_files():
    """Files may not exceed 20 kB, which has the effect of a full disk."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_is_named_and_what_was_written_can_be_read(tmp_path, small_files):
    store = TrajectoryStore(tmp_path)

    def fill():
        for seed in range(1000):
            store.add(some(0, seed))

    with pytest.raises(StoreError, match="a trajectory could not be written"):
        fill()
    found = list(TrajectoryStore(tmp_path).read(0))
    assert 10 < len(found) < 1000 and found[-1].seed == len(found) - 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.manual_seed(0)
    where = tmp_path_factory.mktemp("base")
    save_folder(Llama(replace(SMALL, vocabulary=64, width=64, inner=64, layers=1, heads=1)), where)
    return where


def test_a_checkpoint_is_a_folder_like_any_other_with_a_head(tmp_path, folder):
    run = PpoRunFolder(tmp_path / "run", ASKED)
    assert run.latest() is None
    actor = Actor.load(folder, torch.device("cpu"))
    with torch.no_grad():
        actor.head.out.bias.fill_(0.5)
    made = run.save(actor, folder, PpoState(iteration=3, tokens=17))
    assert (made / "tokenizer.json").is_file() and (made / "config.json").is_file()
    again, state = PpoRunFolder(tmp_path / "run", ASKED).latest()
    assert (again, state) == (made, PpoState(iteration=3, tokens=17))
    before, after = load_folder(folder).state_dict(), load_folder(made).state_dict()
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)
    assert Actor.load(made, torch.device("cpu")).head.out.bias.item() == 0.5


@pytest.mark.parametrize(("every", "kept"), [(0, [0, 6, 7]), (3, [0, 3, 6, 7])])
def test_the_first_the_last_two_and_what_is_wanted_are_kept_and_half_a_one_is_nothing(tmp_path, folder, every, kept):
    run = PpoRunFolder(tmp_path, ASKED, keep_every=every)
    actor = Actor.load(folder, torch.device("cpu"))
    for iteration in range(8):
        run.save(actor, folder, PpoState(iteration=iteration))
    (tmp_path / "checkpoint-000008.partial").mkdir()
    again = PpoRunFolder(tmp_path, ASKED)
    names = [f"checkpoint-{number:06}" for number in kept]
    assert sorted(path.name for path in tmp_path.glob("checkpoint-*")) == names
    assert again.first().name == "checkpoint-000000"
    assert again.latest()[1].iteration == 7


def test_a_disk_that_fills_up_leaves_the_checkpoint_before_it(tmp_path, folder, request):
    run = PpoRunFolder(tmp_path, ASKED)
    actor = Actor.load(folder, torch.device("cpu"))
    run.save(actor, folder, PpoState(iteration=1))
    request.getfixturevalue("small_files")
    with pytest.raises(StoreError, match="checkpoint-000002 could not be written"):
        run.save(actor, folder, PpoState(iteration=2))
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-000001"]
    assert run.named().endswith("checkpoint-000001")
    load_folder(run.latest()[0])


def test_another_run_is_refused_by_what_differs(tmp_path):
    PpoRunFolder(tmp_path, ASKED)
    with pytest.raises(UsageError, match="seed 0, not 1"):
        PpoRunFolder(tmp_path, {**ASKED, "seed": 1})
