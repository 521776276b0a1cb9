"""Jobs in tabs: opened, followed, drawn, and found where other terminals have begun them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kernel_assistant.config import Settings
from kernel_assistant.errors import KernelAssistantError
from kernel_assistant.events import JobFailed, JobFinished
from kernel_assistant.records import KernelTask
from kernel_assistant.remote.away import Sent, bring_back, connected, noted, send
from kernel_assistant.session.event_log import log_path, recorded_events
from kernel_assistant.session.following import Source
from kernel_assistant.session.threads import in_thread, tell
from kernel_assistant.store import JobOptions, JobRow
from kernel_assistant_tui.actions import shown_key
from kernel_assistant_tui.host.follow import follow_in_thread
from kernel_assistant_tui.host.in_hand import InHand, in_hand
from kernel_assistant_tui.host.messages import JobEvents, JobFollowed
from kernel_assistant_tui.jobs import OpenJob, OpenJobs
from kernel_assistant_tui.project.module import Module
from kernel_assistant_tui.project.watch import Watcher
from kernel_assistant_tui.view.folding import fold
from kernel_assistant_tui.view.job_view import JobView, empty

if TYPE_CHECKING:
    from kernel_assistant_tui.screens.main import MainScreen

#: Jobs that a dead host has left and that are opened by themselves; history has the others.
MOST_LEFT = 3


@dataclass(frozen=True)
class Followed:
    """Who is asked about a job, its number there, and the thread that waits for it."""

    source: Source
    number: str
    follower: int


class Following:
    """Of one main screen. `key` is that of the tab that is shown, "" without."""

    def __init__(self, screen: MainScreen) -> None:
        self._screen = screen
        self.jobs = OpenJobs()
        self.key = ""
        self._looking = False
        self._followed: dict[str, Followed] = {}
        self._boxes: dict[str, Sent] = {}
        self._opened: set[str] = set()

    @property
    def current(self) -> OpenJob | None:
        return self.jobs.get(self.key)

    # The project

    def start(self) -> None:
        """Read the project and the store, and watch both from now on."""
        loop = asyncio.get_running_loop()
        screen = self._screen

        def changed(paths: frozenset[Path]) -> None:
            tell(loop, lambda: screen.flow(lambda: self.look(paths)))

        def failed(why: str) -> None:
            words = f"changes of files are not noticed ({why}); see fs.inotify.max_user_watches"
            tell(loop, lambda: screen.say(words, severity="warning"))

        self._watcher = Watcher(screen.work.root, changed, failed)
        self._watcher.start()
        screen.flow(lambda: self.look(None))
        if screen.work.settings.host:
            screen.flow(self._look_elsewhere)

    async def look(self, changed: frozenset[Path] | None = frozenset()) -> None:
        """Read what may have changed (None: everything), and show it."""
        screen, work, loop = self._screen, self._screen.work, asyncio.get_running_loop()
        modules = await in_thread(
            lambda: work.project.read(changed, lambda part: tell(loop, screen.show_modules, part))
        )
        if changed is None and work.project.cut_off:
            screen.say("the project has too many files; name a folder inside it", severity="warning")
        hands = await in_thread(lambda: in_hand(work.project, work.client))
        left = {row.id for row in hands.left}
        screen.show_modules(tuple(_interrupted(one) if one.state.job in left else one for one in modules))
        await self._open_what_is_there(hands)

    async def round(self) -> None:
        """Every two seconds: has anybody begun, ended, applied or scanned something?"""
        if self._looking:
            return
        self._looking = True
        try:
            if await in_thread(self._screen.work.project.jobs_changed):
                await self.look()
        except KernelAssistantError:
            pass  # the store is locked or damaged: the next round tries again
        finally:
            self._looking = False

    async def _open_what_is_there(self, hands: InHand) -> None:
        """Tabs for jobs that others have begun; those that a dead host has left are opened as far as they went."""
        for row in hands.active:
            if row.id not in self._opened:
                self.follow(row, show=not self.key)
        left = [row.id for row in hands.left if row.id not in self._opened][:MOST_LEFT]
        for number in left:
            await self.open(number, show=not self.key)
        if left:
            words = f"job {left[0]} was" if len(left) == 1 else f"jobs {', '.join(left)} were"
            key = shown_key(self._screen.work.preferences.key("resume"))
            self._screen.say(f"{words} interrupted; {key} goes on with it", severity="warning")

    # Tabs

    def show(self, key: str) -> None:
        """Another tab."""
        self.key = key
        if self._screen.in_training:
            self._screen.go("episode")
        self._screen.show_job()

    def step(self, by: int) -> None:
        keys = [one.key for one in self.jobs]
        if keys:
            place = keys.index(self.key) + by if self.key in keys else 0
            self.show(keys[place % len(keys)])

    def close(self, key: str) -> None:
        """Take a tab away; its job goes on, and is not opened by itself again."""
        keys = [one.key for one in self.jobs]
        place = keys.index(key)
        self.jobs.close(key)
        self._followed.pop(key, None)
        rest = [one for one in keys if one != key]
        self.show(rest[min(place, len(rest) - 1)] if rest else "")

    def follow(self, row: JobRow, *, show: bool) -> OpenJob:
        """Open a tab for a job that the host has, or that is to go on, and follow it."""
        return self._follow(self.jobs.open(row), self._screen.work.client, row.id, show=show)

    def _follow(self, job: OpenJob, source: Source, number: str, *, show: bool) -> OpenJob:
        self._opened.add(job.key)
        if not job.followed:
            self.jobs.follow(job.key, followed=True)
            follower = follow_in_thread(source, number, job.key, self._screen)
            self._followed[job.key] = Followed(source, number, follower)
        self._shown(job.key, show=show)
        return job

    def _shown(self, key: str, *, show: bool) -> None:
        if show or not self.key:
            self.show(key)
        else:
            self._screen.show_job()

    def source(self, key: str) -> tuple[Source, str]:
        """Whom to ask about a job, and its number there."""
        followed = self._followed.get(key)
        return (self._screen.work.client, key) if followed is None else (followed.source, followed.number)

    async def open(self, number: str, *, show: bool = True) -> OpenJob:
        """A tab for a job of the store: followed where a host has it, else as far as its log goes."""
        work = self._screen.work
        known = self.jobs.get(number)
        if known is not None:
            self.show(known.key)
            return known
        row = await in_thread(lambda: work.project.store.job(number))
        if row.state.active and await in_thread(work.client.status) is not None:
            return self.follow(row, show=show)
        job = self.jobs.open(row, await in_thread(lambda: _recorded(work.settings, row)))
        self._opened.add(row.id)
        self._shown(job.key, show=show)
        return job

    async def open_chosen(self) -> None:
        """The last job of the chosen class; without one, how it is to be optimized."""
        module = self._screen.module
        if module is None:
            return
        if module.state.job:
            job = await self.open(module.state.job)
            self._screen.go("result" if job.has_kernels else "episode")
        else:
            self._screen.action_act("options")

    # Submitting and hearing

    async def submit(self, task: KernelTask, options: JobOptions, settings: Settings) -> OpenJob:
        """Hand a job to the host, here or on another machine, and follow it. Raises what the host refuses it with."""
        client = self._screen.work.client
        options = msgspec.structs.replace(options, free_wins=settings.free_wins)
        if settings.host:
            self._screen.say(f"sending {task.name} to {settings.host}")
            return self._follow_away(await in_thread(lambda: send(task, options, settings)), show=True)
        submitted: dict[str, Any] = await in_thread(lambda: client.submit(task, options))
        number = str(submitted["job"])
        if submitted["joined"]:
            self._screen.say(f"job {number} is at it already; watching that one")
        row = await in_thread(lambda: self._screen.work.project.store.job(number))
        return self.follow(row, show=True)

    def _follow_away(self, sent: Sent, *, show: bool) -> OpenJob:
        job = self.jobs.open_away(sent.away)
        self._boxes[job.key] = sent
        return self._follow(job, sent.box.client, sent.away.number, show=show)

    async def _look_elsewhere(self) -> None:
        """Jobs that an earlier session, or an editor, has left on the machine of the settings."""
        work = self._screen.work
        away = [one for one in await in_thread(lambda: noted(work.settings)) if one.host == work.settings.host]
        mine = [one for one in away if Path(one.path).is_relative_to(work.root)]
        if mine:
            box = await in_thread(lambda: connected(work.settings))
            for one in mine:
                self._follow_away(Sent(box, one, {}), show=not self.key)

    def hear(self, message: JobEvents) -> None:
        job = self.jobs.fold(message.job, message.events) if self._is_current(message) else None
        if job is None:
            return
        if message.job == self.key:
            self._screen.show_job()
        if any(isinstance(event, (JobFinished, JobFailed)) for event in message.events):
            self._screen.flow(lambda: self._tell_end(job))

    def ended(self, message: JobFollowed) -> None:
        """Nothing more will be heard of a job."""
        if self._is_current(message):
            self.jobs.follow(message.job, followed=False)
            self._screen.show_job()
            if message.job in self._boxes:
                self._screen.flow(lambda: self._bring_back(message.job))

    def _is_current(self, message: JobEvents | JobFollowed) -> bool:
        """Whether it is of the thread that follows the job now."""
        followed = self._followed.get(message.job)
        return followed is None or message.follower in (0, followed.follower)

    async def _bring_back(self, key: str) -> None:
        sent, settings = self._boxes.pop(key), self._screen.work.settings
        self.jobs.brought(key, await in_thread(lambda: bring_back(sent.box, sent.away, settings)))
        self._screen.show_job()
        await self.look()

    async def _tell_end(self, job: OpenJob) -> None:
        from kernel_assistant_tui.flows.verify import verdict_of

        view = job.view
        if view.failure is not None:
            self._screen.say(f"{job.label}: {view.failure.cause}\n{view.failure.next_step}", severity="error")
        elif view.result is not None:
            self._screen.say(f"{job.label}: {await in_thread(lambda: verdict_of(job))}")
        await self.look()


def _interrupted(module: Module) -> Module:
    """Its host is gone, whatever the store says."""
    return replace(module, state=replace(module.state, state="interrupted"))


def _recorded(settings: Settings, row: JobRow) -> JobView:
    """What the log has, and the end that the store knows of where the log has none (a full disk). For threads."""
    view = fold(empty(row.id), *recorded_events(log_path(settings.jobs_dir, row.id)))
    if row.result is None or not view.state.active:
        return view
    return fold(view, JobFinished(seq=view.seq + 1, job=row.id, time=row.ended, result=row.result))
