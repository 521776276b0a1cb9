"""A class with several configurations: each gets a job, apply puts all in, and all calls of the program are served."""

from __future__ import annotations

import sys
from contextlib import closing

import pytest

from kernel_assistant.config import resolve
from kernel_assistant.store import Store

pytestmark = [pytest.mark.programs, pytest.mark.slow]

PROGRAM = """
import torch
from torch import nn

class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width))

    def forward(self, x, scale=1.0):
        return torch.tanh(x * self.weight * scale) + x

if __name__ == "__main__":
    torch.manual_seed(0)
    wide, narrow = Norm(96).eval(), Norm(64).eval()
    with torch.no_grad():
        for _ in range(4):
            results = wide(torch.ones(8, 96)), narrow(torch.ones(8, 64)), narrow(torch.ones(8, 64), scale=2.0)
    print(sum(float(each.double().sum()) for each in results))
"""
CALLS = 12


@pytest.fixture(autouse=True)
def one_turn(monkeypatch):
    monkeypatch.setenv("KERNEL_ASSISTANT_TURNS", "1")


def test_every_configuration_is_optimized_applied_and_served(write, run, answer, scan):
    write("net.py", PROGRAM)
    (row,) = scan(sys.executable, "net.py")["classes"]
    assert row["calls"] == CALLS and len(row["more"]) == 2
    assert [row["main_calls"], *(one["calls"] for one in row["more"])] == [4, 4, 4]

    whole = answer("optimize", "--scan", "last:Norm", "--json", "--budget", "600s", "--no-free-wins")
    parts = whole["configurations"]
    assert [part["number"] for part in parts] == [1, 2, 3] and len({part["job"] for part in parts}) == 3
    assert not any(part["failure"] for part in parts), parts
    assert whole["calls"] == CALLS and whole["job"] == int(parts[0]["job"]) and whole["outcome"] == parts[0]["outcome"]
    assert whole["served_calls"] == sum(part["served_calls"] for part in parts)

    applied = answer("apply", "1:Norm", "--force", "--json")
    assert applied["jobs"] == [part["job"] for part in parts] and applied["diff"]

    measured = answer("compare", "--repeat", "1", "--json")
    (norm,) = measured["classes"]
    assert (norm["kernel"], norm["fallbacks"], measured["difference"]) == (CALLS, {}, "")
    assert run("undo", "last").returncode == 0


def test_one_configuration_can_be_named_and_a_file_means_all(write, run, answer, scan):
    path = write("net.py", PROGRAM)
    scan(sys.executable, "net.py")
    one = answer("optimize", "--scan", "last:Norm#2", "--json", "--detach", "--no-free-wins")
    assert one.keys() == {"job"}
    several = answer("optimize", f"{path}:Norm", "--json", "--detach", "--budget", "30s", "--money", "6")
    assert len(several["jobs"]) == 3
    with closing(Store(resolve()[0].state_dir)) as store:
        limits = [store.job(job).options for job in several["jobs"]]
    assert sum(one.budget for one in limits) == pytest.approx(30)
    assert [one.money for one in limits] == pytest.approx([one.budget / 5 for one in limits])
    for job in (one["job"], *several["jobs"]):
        run("cancel", job)
