import assert from "node:assert/strict";
import { test } from "node:test";
import { bytes, milliseconds, scientific } from "../../../extensions/vscode/src/format.ts";
import { after, ending, type JobView, line, title } from "../../../extensions/vscode/src/jobs/state.ts";
import type { JobEvent } from "../../../extensions/vscode/src/protocol.ts";
import { statusText } from "../../../extensions/vscode/src/views/text.ts";
import { quoted, words } from "../../../extensions/vscode/src/words.ts";

const event = (change: Partial<JobEvent>): JobEvent => ({
    job: "1",
    uri: "file:///a.py",
    class: "Block",
    state: "running",
    message: "",
    turn: null,
    best: null,
    percent: null,
    ...change,
});
const view = (...changes: Partial<JobEvent>[]): JobView => {
    const [first, ...rest] = changes.map(event);
    return rest.reduce(after, after(undefined, first ?? event({})));
};

test("what an event leaves out stays as it was, and progress never goes back", () => {
    const now = view(
        { turn: 3, percent: 40, best: { ms: 1.7, compile_ms: 2.6, speedup: 1.5 } },
        { percent: 20, message: "confirming" },
    );
    assert.equal(now.percent, 40);
    assert.equal(line(now), "best 1.70 ms, 1.50× vs torch.compile · turn 3 · confirming");
});

test("long paths are cut in front, what is no path is left alone", () => {
    assert.equal(line(view({ message: "starting /home/me/project/.venv/bin/python" })), "starting …/bin/python");
    assert.equal(line(view({ message: "loading block.py:Block, 3/4" })), "loading block.py:Block, 3/4");
});

test("without a time of torch.compile the best is compared with eager", () => {
    assert.match(line(view({ best: { ms: 1, compile_ms: null, speedup: 2 } })), /2\.00× vs eager/);
});

test("only an improved job offers its changes", () => {
    const improved = view({ state: "finished", outcome: "improved", message: "2.1× vs torch.compile" });
    assert.deepEqual([ending(improved, true).review, ending(improved, true).choices[0]], [true, "Apply"]);
    assert.deepEqual([ending(improved, false).review, ending(improved, false).choices[0]], [false, "Review Changes"]);
    const none = ending(view({ state: "finished", outcome: "no_measurable_gain" }), true);
    assert.deepEqual([none.review, none.text, none.choices], [false, "Block: no measurable gain", ["Show Report"]]);
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
    const kept = ending(view({ best: { ms: 1.7, compile_ms: null, speedup: null } }, { state: "cancelled" }), true);
    assert.match(kept.text, /cancelled; the best so far is kept \(best 1\.70 ms\)/);
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
    const busy = statusText("running", null, status, [view({ best: { ms: 0.0233, compile_ms: null, speedup: null } })]);
    assert.equal(busy.text, "$(sync~spin) Block 23.3 µs · H200 87%");
    assert.match(busy.tooltip, /8\.00 GiB of 128 GiB/);
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
