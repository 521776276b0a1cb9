import assert from "node:assert/strict";
import { test } from "node:test";
import { bytes, milliseconds, scientific } from "../../../extensions/vscode/src/format.ts";
import { ending, line, title } from "../../../extensions/vscode/src/jobs/state.ts";
import type { Best, JobView } from "../../../extensions/vscode/src/protocol.ts";
import { grouped, label, state } from "../../../extensions/vscode/src/views/rows.ts";
import { seen, statusText } from "../../../extensions/vscode/src/views/text.ts";
import { quoted, words } from "../../../extensions/vscode/src/words.ts";

const view = (change: Partial<JobView>): JobView => ({
    job: "1",
    uri: "file:///a.py",
    class: "Block",
    kind: "optimize",
    state: "running",
    message: "",
    nextStep: "",
    turn: 0,
    best: null,
    percent: 0,
    left: null,
    outcome: null,
    offer: "none",
    unconfirmed: false,
    ...change,
});
const best = (change: Partial<Best>): Best => ({
    ms: 1.7,
    compile_ms: null,
    speedup: null,
    confirmed: false,
    ...change,
});

test("the best so far comes first, then the turn and what is done", () => {
    const now = view({ turn: 3, message: "confirming", best: best({ compile_ms: 2.6, speedup: 1.5 }) });
    assert.equal(line(now), "best 1.70 ms, 1.50× vs torch.compile, not confirmed · turn 3 · confirming");
});

test("what the model has cost comes last; an older server says nothing of it", () => {
    const spent = "2 requests, 900 tokens in, 80 out";
    assert.equal(line(view({ turn: 3, message: "confirming", spent })), `turn 3 · confirming · ${spent}`);
});

test("long paths are cut in front, what is no path is left alone", () => {
    assert.equal(line(view({ message: "starting /home/me/project/.venv/bin/python" })), "starting …/bin/python");
    assert.equal(line(view({ message: "loading block.py:Block, 3/4" })), "loading block.py:Block, 3/4");
});

test("without a time of torch.compile the best is compared with eager", () => {
    assert.match(line(view({ best: best({ ms: 1, speedup: 2 }) })), /2\.00× vs eager/);
});

test("only an improved job offers its changes", () => {
    const improved = view({
        state: "finished",
        outcome: "improved",
        offer: "recommended",
        message: "2.1× vs torch.compile",
    });
    assert.deepEqual([ending(improved, true).review, ending(improved, true).choices[0]], [true, "Apply"]);
    assert.deepEqual([ending(improved, false).review, ending(improved, false).choices[0]], [false, "Review Changes"]);
    const none = ending(view({ state: "finished", outcome: "no_measurable_gain" }), true);
    assert.deepEqual([none.review, none.text, none.choices], [false, "Block: no measurable gain", ["Show Report"]]);
});

test("a gain over eager alone is offered too, and what is not known is verified in full", () => {
    const message = "no measurable gain: over eager a gain, 1.87×";
    const eager = ending(view({ state: "finished", outcome: "no_measurable_gain", message, offer: "possible" }), true);
    assert.deepEqual([eager.review, eager.choices], [true, ["Apply", "Show Report", "Discard"]]);
    const open = ending(view({ state: "finished", outcome: "inconclusive", unconfirmed: true }), true);
    assert.deepEqual([open.review, open.choices], [false, ["Verify in Full", "Show Report"]]);
    const found = best({ compile_ms: 2, speedup: 1.2 });
    const cut = ending(view({ best: found, state: "cancelled", unconfirmed: true }), true);
    assert.deepEqual(cut.choices, ["Verify in Full", "Show Report"]);
    assert.equal(line(view({ best: { ...found, confirmed: true } })), "best 1.70 ms, 1.20× vs torch.compile");
});

test("a job that looked for no kernels offers none", () => {
    const lines = view({ kind: "lines", state: "finished", outcome: "improved", message: "5 lines timed" });
    assert.equal(title(lines), "Profiling Block");
    assert.deepEqual(ending(lines, true), {
        kind: "information",
        text: "Block: 5 lines timed",
        choices: [],
        review: false,
    });
});

test("a cancelled job says what is kept, a failed one why and what next", () => {
    const kept = ending(view({ best: best({}), state: "cancelled" }), true);
    assert.match(kept.text, /cancelled; the best so far is kept \(best 1\.70 ms, not confirmed\)/);
    const failed = ending(view({ state: "failed", message: "Block has no inputs" }), true);
    assert.deepEqual([failed.kind, failed.choices[0]], ["error", "Give It Inputs"]);
    assert.deepEqual(ending(view({ kind: "lines", state: "failed", message: "compiled" }), true).choices, ["Show Log"]);
    assert.equal(
        ending(view({ state: "failed", message: "worker lost", nextStep: "try again" }), true).text,
        "Block: worker lost. Next: try again",
    );
});

test("the status item names device, load and job, and what is wrong", () => {
    const status = {
        device: "NVIDIA H200",
        utilisation: 0.87,
        memory_used: 2 ** 33,
        memory_total: 2 ** 37,
        running: null,
    };
    const busy = statusText("running", null, status, [view({ best: best({ ms: 0.0233 }) })]);
    assert.equal(busy.text, "$(sync~spin) Block 23.3 µs · H200 87%");
    assert.match(busy.tooltip, /8\.00 GiB of 128 GiB/);
    assert.equal(statusText("running", null, seen(status, false), []).text, "$(rocket) H200");
    assert.equal(statusText("running", null, seen(status, true), []).text, "$(rocket) H200 87%");
    assert.deepEqual(statusText("failed", "no Python", null, []).tooltip, "no Python");
    assert.equal(
        statusText("running", null, { ...status, device: "AMD EPYC", utilisation: null }, []).text,
        "$(rocket) EPYC",
    );
});

test("numbers in the units that people use", () => {
    assert.deepEqual(
        [0.0233, 1.746, 123.4, 2500, null].map((ms) => milliseconds(ms)),
        ["23.3 µs", "1.75 ms", "123 ms", "2.50 s", "–"],
    );
    assert.deepEqual(
        [512, 2048, 3 * 2 ** 30].map((count) => bytes(count)),
        ["512 B", "2.00 KiB", "3.00 GiB"],
    );
    assert.deepEqual(
        [3.9e-6, 0].map((value) => scientific(value)),
        ["3.9e-6", "0"],
    );
});

test("command lines are split as a shell would, and quoting is undone by it", () => {
    assert.deepEqual(words(`python -m pytest 'tests/a b.py' "c \\"d\\"" e\\ f`), [
        "python",
        "-m",
        "pytest",
        "tests/a b.py",
        'c "d"',
        "e f",
    ]);
    assert.deepEqual(words(quoted("it's a path.py")), ["it's a path.py"]);
});

test("jobs are grouped by class, those that run first, and say whether their file takes them", () => {
    const stored = (job: string, name: string, more: object): object => ({
        job,
        uri: `file:///my%20models/${name.toLowerCase()}.py`,
        class: name,
        kind: "optimize",
        state: "done",
        ended: 0,
        result: { outcome: "improved" },
        offer: "recommended",
        figure: "2.0× vs torch.compile",
        ...more,
    });
    const running = view({ job: "5", uri: "file:///my%20models/block.py", message: "turn 2" });
    const groups = grouped(
        [running],
        [
            stored("5", "Block", { state: "running", result: null, figure: "" }),
            stored("4", "Gate", { result: null, figure: "", state: "failed" }),
            stored("3", "Block", { appliable: true }),
            stored("2", "Block", { kind: "lines", result: { outcome: "profiled" }, figure: "" }),
        ],
    );
    assert.deepEqual(
        groups.map((group) => [group.class, group.file, group.jobs.map((job) => [label(job), job.text, state(job)])]),
        [
            [
                "Block",
                "block.py",
                [
                    ["job 5", "turn 2", "active"],
                    ["job 3", "2.0× vs torch.compile", "appliable"],
                    ["job 2, line by line", "profiled", "ended"],
                ],
            ],
            ["Gate", "gate.py", [["job 4", "failed", "ended"]]],
        ],
    );
});
