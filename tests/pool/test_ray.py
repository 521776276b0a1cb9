"""Actors in a Ray cluster that these tests start: they judge, are lost, and Ray starts them again."""

from __future__ import annotations

import importlib.util
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

import kernel_assistant_training
from kernel_assistant.errors import DeviceError, MissingError, UsageError
from kernel_assistant.targets.cpu import facts
from kernel_assistant_training.evaluation.worker import JobFailed, TaskOpened
from kernel_assistant_training.options.addresses import HostAddress
from kernel_assistant_training.ppo.pool import ray_hosts
from kernel_assistant_training.ppo.pool.kind import device_kind
from kernel_assistant_training.ppo.pool.pool import EvaluationPool, PoolOptions
from tests.common.caches import new_cache
from tests.pool.hosts import OPTIONS, RIGHT, listening, outcomes

pytestmark = pytest.mark.cluster
HAS_RAY = importlib.util.find_spec("ray") is not None
NEEDS = "needs Ray: pip install 'kernel-assistant[train-ray]'"
needs_ray = pytest.mark.skipif(not HAS_RAY, reason=NEEDS)
AUTO = HostAddress("ray", "auto")


@pytest.mark.skipif(HAS_RAY, reason="for machines without Ray")
def test_without_ray_it_says_what_to_install():
    with pytest.raises(MissingError, match="Ray is not installed here") as caught:
        ray_hosts.connections(AUTO, "cpu")
    assert "kernel-assistant[train-ray]" in caught.value.next_step


# Before the tests with a cluster, to which this process is connected.
@needs_ray
def test_without_a_cluster_it_says_how_to_start_one():
    with pytest.raises(MissingError, match="no Ray cluster at auto: ") as caught:
        ray_hosts.connections(AUTO, "cpu")
    assert "ray start --head" in caught.value.next_step


@needs_ray
def test_a_call_without_a_cluster_starts_none_of_its_own():
    ray = ray_hosts.imported()

    @ray.remote
    def asked():
        return 1

    with pytest.raises(Exception, match="Ray has not been started"):
        asked.remote()
    assert not ray.is_initialized()


@pytest.fixture(scope="module")
def cluster(own_templates, tmp_path_factory, python_path):
    """A node with one processor, to which this process is connected. The process would end if that node
    disappeared.
    """
    if not HAS_RAY:
        pytest.skip(NEEDS)
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("home")
        new_cache(home / "cache")
        patch.setenv("KERNEL_ASSISTANT_HOME", str(home))
        patch.setenv("PYTHONPATH", python_path)
        # Ray gives its processes the lowest priority but four, and other tests run beside these.
        patch.setenv("RAY_worker_niceness", "0")
        ray_hosts.imported()
        from ray.cluster_utils import Cluster

        made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        ray = ray_hosts.connected(made.address)
        yield made
        ray.shutdown()
        made.shutdown()


@pytest.fixture
def another(cluster):
    """A function: starts a node. At the end of the test Ray knows that it is gone."""
    started = []

    def start(cores=1, **env):
        started.append(cluster.add_node(num_cpus=cores, env_vars=env or None))
        return started[-1]

    yield start
    for node in started:
        if node in cluster.list_all_nodes():
            cluster.remove_node(node)
    while sum(node["Alive"] for node in ray_hosts.imported().nodes()) > 1:
        time.sleep(0.1)


def at(node):
    """The connection to the actor for a node."""
    found = ray_hosts.connections(AUTO, "cpu")
    return next(one for one in found if one.args[2].node == node.node_id)


def actor_of(node):
    """The process of the actor on a node."""
    (raylet,) = node.all_processes["raylet"]
    children = psutil.Process(raylet.process.pid).children()
    (actor,) = [one for one in children if one.cmdline()[0].startswith("ray::HostActor")]
    return actor


def with_children(process):
    return [process, *process.children(recursive=True)]


def ended(processes):
    return psutil.wait_procs(processes, timeout=30)[1] == []


def once_opened(connect, strike):
    """The connection; `strike` is called when the host has opened its first task."""
    pending = [strike]

    def heard(host, answer):
        if isinstance(answer, TaskOpened) and pending:
            pending.pop()()

    return listening(connect, heard)


def void(jobs):
    assert all(answer in (None, right) for job in jobs for answer, right in zip(outcomes(job), RIGHT, strict=True))
    return sum(outcomes(job).count(None) for job in jobs)


@pytest.mark.slow
def test_node_that_vanishes_costs_what_it_was_at_and_ray_starts_its_actor_on_another(cluster, another, fleet, jobs):
    vanishing = another()
    kept, doomed = at(cluster.head_node), at(vanishing)
    made, lines = fleet(kept, once_opened(doomed, lambda: cluster.remove_node(vanishing, allow_graceful=False)))
    made.run(jobs, lambda job, index: None)
    assert void(jobs) == 1
    name = doomed.args[2].name
    assert lines[0].startswith(f"{name} is lost: Ray lost it: ") and "void: 1 evaluation" in lines[0]
    assert made.workers == 1
    another()
    while made.workers < 2:
        made.run([], lambda job, index: None)
        time.sleep(0.1)
    assert lines[1:] == [f"{name}: judges again"]


@pytest.mark.slow
def test_actor_that_dies_ends_its_workers_and_comes_back(cluster, fleet, jobs):
    """It is the only host: the round waits for it."""
    doomed = []

    def kill():
        doomed.extend(with_children(actor_of(cluster.head_node)))
        doomed[0].send_signal(signal.SIGKILL)

    made, lines = fleet(once_opened(at(cluster.head_node), kill))
    made.run(jobs, lambda job, index: None)
    assert void(jobs) == 1
    assert len(doomed) > 1 and ended(doomed)
    assert "is lost: Ray lost it: " in lines[0] and "void: 1 evaluation" in lines[0]
    assert lines[1].endswith(": judges again") and len(lines) == 2
    family = with_children(actor_of(cluster.head_node))
    made.close()
    assert ended(family)


@pytest.mark.slow
def test_actor_without_workers_gets_another_process(cluster, fleet, jobs, tmp_path):
    """Its interpreter is gone for a moment, in which its processes are killed."""
    python, away, before = tmp_path / "python", tmp_path / "away", []
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)

    def heard(host, answer):
        if isinstance(answer, TaskOpened) and not before:
            before.append(actor_of(cluster.head_node))
            python.rename(away)
            for process in before[0].children(recursive=True):
                with suppress(psutil.NoSuchProcess):  # it ended with its parent
                    process.kill()
        elif isinstance(answer, JobFailed) and answer.lost:
            away.rename(python)

    (connect,) = ray_hosts.connections(HostAddress("ray", "auto", python=str(python)), "cpu")
    made, lines = fleet(listening(connect, heard))
    made.run(jobs, lambda job, index: None)
    assert 1 <= void(jobs) <= len(RIGHT)
    assert "is lost: " in lines[0] and str(python) in lines[0]
    assert lines[1].endswith(": judges again") and len(lines) == 2
    assert before[0].pid != actor_of(cluster.head_node).pid


@pytest.mark.slow
def test_no_node_with_room_for_the_actor(cluster, another, fleet, jobs):
    """The round fails after its patience."""
    vanishing = another(cores=2)
    doomed = once_opened(at(vanishing), lambda: cluster.remove_node(vanishing, allow_graceful=False))
    made, lines = fleet(doomed, patience=1.5)
    with pytest.raises(DeviceError, match=r"no worker is left to judge: ray .*: Ray lost it: ") as caught:
        made.run(jobs[:1], lambda job, index: None)
    assert "ray status" in caught.value.next_step
    assert len(lines) == 1


@pytest.mark.slow
def test_pool_in_a_cluster_judges_once(cluster, asked, tmp_path):
    lines = []
    pool = (f"ray:auto?workers=2&python={sys.executable}",)
    here = PoolOptions("cpu", tmp_path / "run", tmp_path / "cache", "/nowhere/python")
    options = replace(here, pool=pool, tell=lines.append)
    (right, broken), (other, _), _ = asked
    with EvaluationPool(options) as pool:
        assert pool.workers == [], "nothing runs here"
        opened = pool.open([right.task])
        assert opened[right.task.key].baseline.eager_ms > 0
        assert opened[right.task.key].device.copy_bandwidth > 0, "of over there"
        first = pool.judge([right, broken, right])
        assert [one.outcome.value for one in first] == ["correct", "compile_error", "correct"]
        actor = actor_of(cluster.head_node)
        family = with_children(actor)
        actor.send_signal(signal.SIGKILL)
        # It was at nothing: nothing is void, and the task goes to it once it is back.
        assert pool.judge([other])[0].outcome.value == "correct"
        assert (pool.judged, pool.repeated, pool.void) == (3, 1, 0)
        family += with_children(actor_of(cluster.head_node))
    assert ended(family)
    assert "is lost: " in lines[0] and "void: 0 evaluations" in lines[0] and "left: 0 workers" in lines[0]
    assert lines[1].endswith(": judges again")
    # Another start, on the same kind of device but another machine: all is known.
    with EvaluationPool(PoolOptions("cpu", tmp_path / "run", new_cache(tmp_path / "cache"), sys.executable)) as pool:
        assert pool.judge([right, broken]) == first[:2]
        assert pool.judge([other])[0].outcome.value == "correct"
        assert (pool.judged, pool.repeated) == (0, 3)
    assert device_kind(facts()) in (tmp_path / "run" / "evaluations.jsonl").read_text()


@pytest.mark.slow
def test_actors_end_with_the_trainer(cluster):
    """Also if it is killed."""
    code = (
        "import sys; from tests.pool.hosts import OPTIONS; from tests.pool.test_ray import AUTO, ray_hosts;"
        f"ray_hosts.connected('{cluster.address}');"
        "host = ray_hosts.connections(AUTO, 'cpu')[0](OPTIONS); print('ready', flush=True); sys.stdin.read()"
    )
    pipes, root = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}, Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", code], cwd=root, **pipes) as trainer:
        assert trainer.stdout.readline() == b"ready\n"
        family = with_children(actor_of(cluster.head_node))
        assert len(family) > 1
        trainer.kill()
    assert ended(family)


@pytest.mark.slow
def test_nodes_without_what_is_needed(another, fleet, tmp_path, python_path):
    """One has another version of this package, one has none."""
    package = Path(kernel_assistant_training.__file__).parent
    changed = shutil.copytree(package, tmp_path / "changed" / package.name)
    with (changed / "ppo/pool/kind.py").open("a") as file:
        file.write("# changed\n")
    none = tmp_path / "none"
    none.mkdir()
    (none / f"{package.name}.py").touch()
    for folder, kind, said in (
        (changed.parent, UsageError, r"ray .* has kernel-assistant .* with other files \("),
        (none, MissingError, "ray .*: kernel-assistant is not installed for the Python of Ray"),
    ):
        node = another(PYTHONPATH=f"{folder}:{python_path}")
        with pytest.raises(kind, match=said):
            fleet(at(node))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "kind", "said"),
    [
        ({"python": "/nowhere/python3"}, MissingError, "ray .*: /nowhere/python3"),
        ({"sandbox": "gravel"}, UsageError, "ray .*: unknown sandbox 'gravel'"),
    ],
)
def test_what_an_actor_lacks_is_its_own_error(cluster, fleet, changed, kind, said):
    host = HostAddress("ray", "auto", python=changed.pop("python", ""))
    with pytest.raises(kind, match=said):
        fleet(*ray_hosts.connections(host, "cpu"), options=replace(OPTIONS, **changed))
