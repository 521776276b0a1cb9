"""Scripted models in the real environment: tools, repairs, endings, both profiles."""

from __future__ import annotations

import threading

import pytest
from msgspec.structs import replace

from kernel_assistant.agent.budget import Budget
from kernel_assistant.agent.guidance import Guidance
from kernel_assistant.agent.loop import run_episode
from kernel_assistant.agent.model_policy import ConversationLimits
from kernel_assistant.errors import Cancelled
from kernel_assistant.policy.bill import Bill
from kernel_assistant.policy.client import PolicyError, ReplySoFar
from kernel_assistant.records import Outcome, Price, StopReason, Timing
from kernel_assistant.records.transcript import Message, ToolCall, Usage
from kernel_assistant.session.kinds.obstacles import obstacles_of
from kernel_assistant.store import Store
from tests.agent.models import BROKEN, EVALUATE, FINISH, NORM, WRONG, calls, correct, hermes, model, observations, write
from tests.agent.scripted import ScriptedClient
from tests.judge.kernels import ROWS, WIDTH

LONG = Budget(seconds=600, patience=1000)


@pytest.fixture
def play(norm, cancel, tmp_path):
    """A function that plays a model to its end and returns the trajectory and the policy."""

    def run(lines, budget=LONG, resume_steps=(), made=lambda policy: None, **kwargs):
        cancel.clear()
        policy = model(norm, tmp_path / "workspace", lines, **kwargs)
        made(policy)
        how = {"emit": lambda event: None, "cancel": cancel, "resume_steps": resume_steps}
        return run_episode(norm, policy, budget, **how), policy

    yield run
    cancel.clear()


def outcomes(trajectory):
    return [evaluation.outcome for step in trajectory.steps for evaluation in step.evaluations]


@pytest.mark.slow
def test_a_model_repairs_what_it_is_told_and_finishes(play):
    trajectory, policy = play(
        [
            calls(("list", {"folder": "."}), ("read", {"path": "reference/graph.txt", "first_line": 1})),
            calls(write(BROKEN), EVALUATE, text="a first try"),
            calls(("edit", {"path": "kernel.cpp", "old": "undeclared", "new": "0.0f"})),
            calls(("edit", {"path": "kernel.cpp", "old": "1e-6f", "new": "1e-1f"}), EVALUATE),
            calls(write(NORM), EVALUATE),
            calls(("profile_reference", {}), ("evaluate", {"tier": "full", "counters": True})),
            calls(FINISH),
        ]
    )
    assert trajectory.stop_reason is StopReason.finished
    assert outcomes(trajectory) == [Outcome.compile_error, Outcome.incorrect, Outcome.correct, Outcome.correct]
    assert trajectory.final.correct
    assert trajectory.policy == "model"
    assert trajectory.steps[0].message == "a first try"
    # Each report names its candidate, so that what was said can be joined with what was measured.
    named = [message.candidate for message in policy.transcript().messages if message.candidate]
    assert named == [evaluation.candidate for step in trajectory.steps for evaluation in step.evaluations]
    listed, read, _, broken, _, _, wrong, _, right, profile, full = observations(policy)
    assert "reference/graph.txt" in listed
    assert "1: " in read and "return" in read
    assert "kernel.cpp:10: error:" in broken and "undeclared" in broken and "float sum = undeclared;" in broken
    assert wrong.startswith("incorrect (verify)") and "out0[" in wrong and "want" in wrong
    assert right.startswith("correct, ") and "eager" in right and "times PyTorch's own" in right
    assert "torch.compile" in profile and "eager" in profile
    assert "(full tier)" in full and full.endswith("\nno counters: hardware counters are read on a GPU")


def test_bad_calls_are_observations(play):
    secret = ("read", {"path": "../../etc/passwd"})
    bad = Message(
        role="assistant",
        content="",
        tool_calls=(
            ToolCall(id="a", name="read", arguments='{"path": '),
            ToolCall(id="b", name="launch_missiles", arguments="{}"),
            ToolCall(id="c", name="read", arguments='{"path": "x", "mode": "rb"}'),
            ToolCall(id="d", name="read", arguments='["x"]'),
            ToolCall(id="e", name="evaluate", arguments='{"tier": "fastest"}'),
        ),
    )
    many = calls(*[("list", {})] * 20)
    lines = [bad, calls(secret, ("edit", {"path": "x", "old": "", "new": "y"})), calls(EVALUATE), many, calls(FINISH)]
    trajectory, policy = play(lines)
    assert (trajectory.stop_reason, trajectory.steps) == (StopReason.finished, ())
    told = observations(policy)
    reasons = [
        "one JSON object with the fields: path, first_line",
        "there is no tool 'launch_missiles'; there are: list, read",
        *("unknown field `mode`", "Expected `object`", "Invalid enum value 'fastest'"),
        *("not a path inside the workspace", "is not there", "no *.cpp file to compile"),
    ]
    assert all(why in text for why, text in zip(reasons, told, strict=False)), told
    assert [("at most 16" in text) for text in told[8:]] == [False] * 16 + [True] * 4
    # Every call is answered, so that an endpoint takes the conversation.
    asked = [call.id for message in policy.transcript().messages for call in message.tool_calls]
    answered = [message.tool_call_id for message in policy.transcript().messages if message.role == "tool"]
    assert answered == asked[:-1]


def test_the_shell_is_confined_and_its_links_lead_nowhere(play, tmp_path):
    (tmp_path / "secret.txt").write_text("secret")
    secret = tmp_path / "secret.txt"
    trajectory, policy = play(
        [
            calls(("shell", {"command": f"cat {secret}; ln -s {secret} link.txt; g++ --version | head -1; exit 3"})),
            calls(("read", {"path": "link.txt"}), ("search", {"pattern": "re(turn|ad)", "folder": "."})),
            calls(("search", {"pattern": "(", "folder": "."}), ("search", {"pattern": "x", "folder": ".."})),
            calls(("shell", {"command": "yes | head -c 100000"})),
            calls(FINISH),
        ]
    )
    assert trajectory.stop_reason is StopReason.finished
    shell, link, found, bad, outside, long = observations(policy)
    assert shell.startswith("exit 3") and "secret\n" not in shell and "No such file" in shell and "g++" in shell
    assert "cannot be opened" in link
    assert "graph.txt" in found and "link.txt" not in found
    assert bad.startswith("error: search") and outside.startswith("error: ")
    assert len(long) < 9000 and "left out" in long


def test_replies_that_ask_for_nothing_end_without_progress(play):
    cut = Message(role="assistant", content="", finish_reason="length")
    trajectory, policy = play(["hello", cut, "let me think", "hm, let me think", calls(FINISH)])
    assert trajectory.stop_reason is StopReason.no_progress
    nudge = "Nothing was called. Call a tool; finish ends the work."
    first, second, third = observations(policy)
    assert (first, second) == (nudge, f"{nudge} The reply was cut off: it was too long.")
    assert third.startswith(nudge) and hermes("list", {}) in third
    assert trajectory.broken == ("policy model: nothing was called, 4 times in a row; last reply: 'hm, let me think'")


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (
            calls(("write", {"file": "a.cpp"})),
            "unknown field `file`; the arguments are one JSON object with the fields: path, text",
        ),
        (calls(("compile", {})), "there is no tool 'compile'"),
        ("<tool_call>{oh no</tool_call>", "not JSON"),
    ],
)
def test_the_same_problem_again_and_again_ends_without_progress(play, reply, problem):
    trajectory, policy = play([reply] * 3 + [calls(("list", {}))] + [reply] * 5)
    assert trajectory.stop_reason is StopReason.no_progress
    assert problem in trajectory.broken and "4 times in a row" in trajectory.broken
    assert len(policy.transcript().replies) == 8
    examples = [text for text in observations(policy) if hermes("list", {}) in text]
    assert len(examples) == 2


def test_other_problems_are_no_standstill(play):
    lines = [calls(("edit", {"path": f"{name}.cpp", "old": name, "new": ""})) for name in "abcdef"]
    assert play([*lines, calls(FINISH)])[0].stop_reason is StopReason.finished


@pytest.mark.slow
def test_a_kernel_in_a_fence_is_written_and_evaluated(play):
    small = "Sure! First the idea:\n```\nrows in parallel\n```\nand here it is:\n```cpp\n" + NORM + "```\nDone."
    trajectory, policy = play([small, calls(FINISH)])
    assert (trajectory.stop_reason, outcomes(trajectory)) == (StopReason.finished, [Outcome.correct])
    wrote, report = observations(policy)
    assert wrote.startswith("wrote kernel.cpp") and "correct" in report


def test_an_endpoint_that_goes_leaves_what_was_found(play):
    trajectory, _ = play([calls(write(NORM), EVALUATE)])
    assert trajectory.stop_reason is StopReason.policy_broken
    assert trajectory.final.correct


@pytest.mark.parametrize(
    ("limits", "reason"),
    [(ConversationLimits(turns=3), StopReason.turns), (ConversationLimits(tokens=25), StopReason.tokens)],
)
def test_turns_and_tokens(play, limits, reason):
    trajectory, policy = play((calls(("list", {})) for _ in range(10)), limits=limits)
    assert trajectory.stop_reason is reason
    assert len(policy.transcript().replies) == 3


def test_what_a_server_does_not_count_is_estimated(play):
    bill = Bill(Price(tokens_in=1.0, tokens_out=1.0))
    silent = replace(calls(FINISH, text="x" * 250), usage=Usage())
    play([calls(("list", {})), silent], bill=bill)
    spent = bill.spent
    assert spent.requests == 2 and spent.estimated and spent.tokens_out == 10 + 100
    assert spent.tokens_in > 2 * 1000 and spent.money == pytest.approx((spent.tokens_in + spent.tokens_out) / 1e6)


def test_too_little_money_for_the_first_prompt(play):
    trajectory, policy = play([calls(FINISH)], bill=Bill(Price(tokens_in=10.0, tokens_out=10.0), limit=0.001))
    assert (trajectory.stop_reason, policy.transcript().replies) == (StopReason.money, ())
    (obstacle,) = obstacles_of(trajectory, "1")
    assert (obstacle.outcome, obstacle.next_step) == ("used up", "give it more --money")


def test_the_last_reply_has_the_tokens_that_are_left(play):
    asked = []

    def answer(request):
        asked.append(request.max_tokens)
        return calls(("list", {}))

    trajectory, _ = play([answer] * 3, limits=ConversationLimits(tokens=15))
    assert (trajectory.stop_reason, asked) == (StopReason.tokens, [15, 5])


def test_wall_time_and_device_time(play):
    def slow(request):
        threading.Event().wait(0.2)
        return calls(("list", {}))

    assert play([slow, slow], Budget(seconds=0.1))[0].stop_reason is StopReason.wall_time
    trajectory, _ = play([calls(write(WRONG), EVALUATE), calls(FINISH)], Budget(seconds=600, device_seconds=1e-6))
    assert (trajectory.stop_reason, len(trajectory.steps)) == (StopReason.device_time, 1)


@pytest.mark.parametrize("context", [5000, 600])
def test_a_first_prompt_that_does_not_fit_is_made_shorter_or_refused(play, context):
    asked = []

    def answer(request):
        asked.append(request.messages[0].content)
        return calls(FINISH)

    trajectory, _ = play(ScriptedClient([answer], context_tokens=context))
    if context == 600:
        assert trajectory.stop_reason is StopReason.policy_broken and not asked
        assert "the model's context has room for 375" in trajectory.broken and "--context N" in trajectory.next_step
    else:
        assert trajectory.stop_reason is StopReason.finished
        assert asked[0].rstrip().endswith("An expert's advice is in reference/SKILL.md.") and len(asked[0]) < 4000


@pytest.mark.parametrize("end", ["cancel", "time", "dead"])
def test_what_came_of_a_reply_is_in_the_transcript_and_counts(play, cancel, end):
    def write(request):
        request.watch(ReplySoFar("x" * 500, 100, 1.0))
        if end == "dead":
            raise PolicyError("truncated", "the endpoint broke off")
        if end == "cancel":
            cancel.set()
        raise Cancelled("cancelled while the model was writing")

    bill = Bill()
    trajectory, policy = play([write], bill=bill)
    reasons = {"cancel": StopReason.cancelled, "time": StopReason.wall_time, "dead": StopReason.policy_broken}
    assert trajectory.stop_reason is reasons[end]
    (reply,) = policy.transcript().replies
    assert (reply.content, reply.finish_reason) == ("x" * 500, "cut")
    assert (bill.spent.requests, bill.spent.tokens_out) == (1, 200)


def test_the_same_candidate_is_not_judged_twice(play):
    trajectory, policy = play([calls(write(WRONG), EVALUATE), calls(EVALUATE), calls(FINISH)])
    assert [len(step.evaluations) for step in trajectory.steps] == [1, 0]
    _, first, again = observations(policy)
    assert first == again


def test_the_user_can_say_something_in_between(play):
    said, heard = [], []

    def listen(request):
        said.append("use fewer threads")
        return calls(("list", {}))

    def answer(request):
        heard.append(request.messages[-1])
        return calls(FINISH)

    play([listen, answer], steering=said)
    assert heard == [Message(role="user", content="use fewer threads")]


def test_after_a_crash_the_best_lies_in_the_workspace(play):
    source = WRONG.replace("\n", "\n// set: UNUSED=3\n", 1)
    earlier, _ = play([calls(write(source), EVALUATE), calls(FINISH)])
    (step,) = earlier.steps
    (found,) = step.evaluations
    # As if it had been right: nothing needs to be confirmed where that is not the point.
    timing = Timing(candidate_ms=0.5, eager_ms=1.0, speedup_vs_eager=2.0)
    resumed = replace(step, evaluations=(replace(correct(found.candidate, found.tier), timing=timing),))
    lines = [calls(("read", {"path": "kernel.cpp"}), EVALUATE), calls(FINISH)]
    trajectory, policy = play(lines, resume_steps=(resumed,))
    told, read, again = observations(policy)[:3]
    assert "interrupted" in told and "0.5 ms" in told
    assert "2: constexpr int UNUSED = 3;  // set: UNUSED=3" in read
    assert again.startswith("correct, 0.5 ms")
    assert [len(one.evaluations) for one in trajectory.steps] == [1, 0]


def test_guidance_takes_tools_away_and_is_in_the_prompt(play):
    guidance = Guidance(text="Avoid shared memory.", without_tools=frozenset({"shell"}))
    _, policy = play([calls(("shell", {"command": "ls"})), calls(FINISH)], guidance=guidance)
    assert observations(policy)[0].startswith("there is no tool 'shell'")
    transcript = policy.transcript()
    assert "Avoid shared memory." in transcript.messages[0].content
    assert "shell" not in [schema["function"]["name"] for schema in transcript.tools]


def test_compact_profile(play):
    fence = "```cpp\n// set: LANES=8\n{}```\n"
    # D0 and C0 are what the graph calls its numbers; plan.h comes with them.
    source = NORM.replace("float sum = 0.0f;", "float sum = LANES * 0.0f;").replace("256", "D0").replace("1e-6f", "C0")
    source = source.replace('#include "plan.h"\n', "").replace("rows=B", "rows=B*D0//256")
    trajectory, policy = play(
        [
            fence.format(source.replace("0.0f;", "undeclared;", 1)),
            fence.format(source.replace("C0", "1e-1f")),
            fence.format(source).replace("LANES=8", "LANES=16") + hermes("evaluate", {}),
            "```cpp\n" + source.partition("\n")[2] + "```",
            "what now",
            hermes("finish", {}),
        ],
        compact=True,
    )
    assert trajectory.stop_reason is StopReason.finished
    assert outcomes(trajectory) == [Outcome.compile_error, Outcome.incorrect, Outcome.correct]
    assert [step.candidates[0].plan.schedule for step in trajectory.steps] == ["LANES=8"] * 2 + ["LANES=16"]
    broken, wrong, right, unplanned, nothing = observations(policy)
    assert broken.startswith("compile L10 ") and "undeclared" in broken
    assert wrong.startswith("wrong out0[") and " got " in wrong and " want " in wrong
    assert right.startswith("ok ") and " compile " in right
    assert unplanned.startswith("plan L1 no launch line")
    assert nothing == "no code"
    system, user = policy.transcript().messages[:2]
    assert len(system.content) < 240 and "mean" in user.content
    assert f"B={ROWS} D0={WIDTH} C0=1e-06 " in user.content and user.content.endswith(" f32")
    assert "constexpr float C0 = 1e-06f;" in trajectory.steps[-1].candidates[0].sources["kernel.cpp"]


def test_a_plan_names_a_schedule_and_the_generator_writes_it(play):
    source = NORM.replace('#include "plan.h"\n', "")
    good = "plan: rows/keep lanes=32 nt=0"
    bad = ["rows/nothing", "rows/keep lanes=32 target=1", "rows/keep lanes=999999999", "LANES=8"]
    lines = [good, f"```cpp\n{source}```", good, *(f"plan: {plan}" for plan in bad), hermes("finish", {})]
    trajectory, policy = play(lines, compact=True)
    assert outcomes(trajectory) == [Outcome.correct, Outcome.correct]
    own, planned = (step.candidates[0] for step in trajectory.steps)
    assert (own.origin, planned.origin) == ("model", "generator")
    assert "// schedule: rows/keep lanes=32 nt=0" in planned.sources["kernel.cpp"]
    early, right, other, *refused = observations(policy)
    assert early == "plan a schedule is for a source that is right"
    assert right.startswith("ok ") and other.startswith("ok ")
    assert [text.startswith("plan schedule ") for text in refused] == [True] * 4


def test_two_hundred_turns_in_little_room(play, tmp_path):
    """Old observations are sent in a short form, but everything is kept. The prompt of any turn can be made again, also
    from the store, which gets the messages after every tenth reply.
    """
    store, kept = Store(tmp_path), [()]

    def keep(client):
        if len(client.requests) % 10 == 0:
            kept.append(store.transcripts.keep("1", 0, policies[0].transcript(), kept[-1]))

    client = Told(_two_hundred_turns(), keep, context_tokens=128_000)
    policies = []
    trajectory, policy = play(client, made=policies.append)
    assert (trajectory.stop_reason, outcomes(trajectory)) == (StopReason.turns, [Outcome.incorrect])
    store.transcripts.keep("1", 0, policy.transcript(trajectory.stop_reason.value), kept[-1])
    (transcript,) = store.transcripts.of("1")
    store.close()
    assert len(kept) == 21 and transcript == policy.transcript("turns")
    assert len(transcript.replies) == 200 and sum(len(one.content) for one in transcript.messages) > 4 * 128_000
    lengths = [sum(len(one.content) for one in request.messages) for request in client.requests]
    assert max(lengths) < 2.5 * 128_000 < sum(len(one.content) for one in transcript.messages)
    for turn in (1, 60, 200):
        assert _sent(transcript.prompt(turn)) == _sent(client.requests[turn - 1].messages)
    last = client.requests[-1].messages
    assert _sent(last[:2]) == _sent(transcript.messages[:2])
    assert any("characters]" in message.content for message in last[:10])
    # Only a few turns change what was sent before: prefix caches stay of use.
    changes = sum(
        _sent(new.messages[: len(old.messages)]) != _sent(old.messages)
        for old, new in zip(client.requests, client.requests[1:], strict=False)
    )
    assert 1 <= changes <= 24


def test_a_prompt_that_is_too_long_for_the_server_is_made_shorter(play):
    """The server's context is half as large as assumed."""

    class Small(ScriptedClient):
        def complete(self, request, cancelled):
            if sum(len(message.content) for message in request.messages) > 60_000:
                raise PolicyError("context", "maximum context length is 20000 tokens")
            return super().complete(request, cancelled)

    def lines():
        yield calls(write("// a line of a long header\n" * 500, "long.h"))
        for _ in range(20):
            yield calls(("read", {"path": "long.h"}))
        yield calls(FINISH)

    trajectory, policy = play(Small(lines(), context_tokens=64_000))
    assert trajectory.stop_reason is StopReason.finished
    assert len(policy.transcript().replies) == 22


class Told(ScriptedClient):
    """A scripted client that calls a function at each reply."""

    def __init__(self, lines, tell, **kwargs):
        super().__init__(lines, **kwargs)
        self._tell = tell

    def complete(self, request, cancelled):
        said = super().complete(request, cancelled)
        self._tell(self)
        return said


def _sent(messages):
    return [message.openai() for message in messages]


def _two_hundred_turns():
    yield calls(write(WRONG), EVALUATE, write("// a line of a long header\n" * 500, "long.h"))
    for _ in range(200):
        reply = calls(("read", {"path": "long.h"}))
        yield Message(role="assistant", content="", tool_calls=reply.tool_calls, usage=Usage(completion_tokens=20))
