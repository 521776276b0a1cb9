"""Actors of a Ray cluster of this test's own."""

from __future__ import annotations

import importlib.util

import pytest

from kernel_assistant.errors import MissingError
from kernel_assistant_training.ppo import pool_ray
from kernel_assistant_training.ppo.pool_events import TaskOpened
from kernel_assistant_training.ppo.pool_machine import Member
from tests.pool.piped import outcomes

HAS_RAY = importlib.util.find_spec("ray") is not None
RIGHT = ["correct", "compile_error"]


@pytest.fixture
def cluster():
    """A node with a processor, to which this process is connected: it would end with another that vanishes."""
    ray = pool_ray.imported()
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    pool_ray.members(made.address, 0, "cpu", 20.0)
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.mark.slow
@pytest.mark.skipif(not HAS_RAY, reason="needs Ray: pip install 'kernel-assistant[train-ray]'")
def test_actors_judge_and_a_node_that_vanishes_costs_what_it_was_at(cluster, fleet, jobs):
    vanishing = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    members = pool_ray.members(cluster.address, 0, "cpu", 20.0)
    assert len(members) == 2

    def watched(member):
        """The member; its node is killed once it has a task open."""

        def connect(options, hear):
            def both(machine, event):
                hear(machine, event)
                if isinstance(event, TaskOpened):
                    cluster.remove_node(vanishing, allow_graceful=False)

            return member.connect(options, both)

        return Member(member.name, connect)

    doomed = next(one for one in members if one.name.endswith(vanishing.node_id[:6]))
    (kept,) = [one for one in members if one is not doomed]
    made, lines = fleet(kept, watched(doomed))
    made.run(jobs, lambda job: None)
    assert sum(outcomes(job).count(None) for job in jobs) == 1
    assert all(answer in (None, right) for job in jobs for answer, right in zip(outcomes(job), RIGHT, strict=True))
    (line,) = lines
    assert line.startswith(f"{doomed.name} is lost: Ray lost it: ") and "void: 1 evaluation" in line


@pytest.mark.skipif(HAS_RAY, reason="for machines without Ray")
def test_without_ray_it_says_what_to_install():
    with pytest.raises(MissingError, match="Ray is not installed here") as caught:
        pool_ray.members("auto", 0, "cpu", 20.0)
    assert "kernel-assistant[train-ray]" in caught.value.next_step


@pytest.mark.skipif(not HAS_RAY, reason="needs Ray")
def test_without_a_cluster_it_says_how_to_start_one():
    with pytest.raises(MissingError, match="no Ray cluster at auto: ") as caught:
        pool_ray.members("auto", 0, "cpu", 20.0)
    assert "ray start --head" in caught.value.next_step


@pytest.mark.skipif(not HAS_RAY, reason="needs Ray")
def test_a_call_after_the_end_starts_no_cluster_of_its_own():
    ray = pool_ray.imported()

    @ray.remote
    def asked():
        return 1

    with pytest.raises(Exception, match="Ray has not been started"):
        asked.remote()
    assert not ray.is_initialized()
