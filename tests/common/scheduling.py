"""How tests are given to processes (pytest-xdist): by groups, and so that a process that dies fails one test.

pytest-xdist's own scheduler gives the test that killed a process to the next process, and leaves the last test of a
group waiting for ever in a process that replaces another.
"""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests.common.order import group_of

#: A process begins a test when it knows the one behind it.
KNOWN_AHEAD = 2


class GroupScheduling(LoadScopeScheduling):
    """Gives each process a group at a time, in the order in which tests were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)

    def _reschedule(self, node: WorkerController) -> None:
        """Gives `node` groups until it has something to do, or ends it; nothing while it still collects."""
        if node not in self.registered_collections:
            return
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) <= KNOWN_AHEAD:
            if not self.workqueue:
                node.shutdown()
                return
            self._assign_work_unit(node)

    def remove_node(self, node: WorkerController) -> str | None:
        """Takes the groups of a process that died back, without the test that it ran; returns this test."""
        groups = self.assigned_work.pop(node)
        waiting = [(group, test) for group, tests in groups.items() for test, ended in tests.items() if not ended]
        if not waiting:
            return None
        group, died = waiting[0]
        groups[group][died] = True
        left = {name: tests for name, tests in groups.items() if not all(tests.values())}
        self.workqueue.update(left)
        for name in reversed(left):
            self.workqueue.move_to_end(name, last=False)
        for other in self.nodes:
            self._reschedule(other)
        return died
