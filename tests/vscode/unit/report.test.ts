import assert from "node:assert/strict";
import { test } from "node:test";
import { reportOf } from "../../../extensions/vscode/src/report/data.ts";
import { highlighted, pageOf } from "../../../extensions/vscode/src/report/html.ts";
import { occupancy } from "../../../extensions/vscode/src/report/occupancy.ts";
import { roofline, speedByTurn } from "../../../extensions/vscode/src/report/plots.ts";

/** As the store has them; figures of a real job on two CPU cores. */
const timing = {
    candidate_ms: 1.746,
    eager_ms: 5.796,
    compile_ms: 2.657,
    speedup_vs_eager: 3.32,
    speedup_vs_compile: 1.52,
    speedup_vs_eager_ci: [3.19, 3.41],
    speedup_vs_compile_ci: [1.5, 1.55],
    floor_ms: 1.377,
    roofline: 0.789,
    warning: "",
};
const accuracy = {
    error: 3.9e-6,
    reference_error: 3.4e-6,
    error_ratio: 1.15,
    relative_error: 7.9e-8,
    inputs_tried: 10,
    shapes_tried: 4,
    bit_reproducible: true,
    reference: "f64",
};
const sources = { "kernel.cpp": "int x;", "ka_cpu.h": "// header" };
const row = {
    id: "4",
    state: "done",
    error: "",
    task: { path: "/w/gated.py", class_name: "Gated", target: "cpu" },
    result: {
        device: "AMD EPYC",
        target: "cpu",
        outcome: "improved",
        seconds: 26.8,
        stop_reason: "no_progress",
        artifacts: {},
        free_wins: [
            {
                name: "compile",
                write: "module = torch.compile(module)",
                ms: 2.6,
                speedup_vs_compile: null,
                passes: true,
                note: "",
            },
        ],
    },
    steps: [
        {
            turn: 1,
            candidates: [
                { plan: { schedule: "rows/keep" }, sources, origin: "generator" },
                { plan: { schedule: "bad" }, sources, origin: "generator" },
            ],
            evaluations: [
                { candidate: "aaaaaaaabbbb", outcome: "correct", message: "", timing },
                { candidate: "cccccccc", outcome: "compile_error", message: "expected ';' <here>", timing: null },
            ],
        },
    ],
};
const answer = {
    ...row,
    offer: "recommended",
    verdict: "measurably faster than torch.compile and eager",
    evaluation: {
        accuracy,
        timing,
        precision: "f32",
        share_in_our_kernels: 1,
        residual: [],
        resources: [{ symbol: "rows", registers: 40, shared_bytes: 2048, spill_bytes: 0 }],
    },
    deviceFacts: { name: "AMD EPYC", copy_bandwidth: 52e9, bandwidth_datasheet: 0 },
    sources: { "sources/kernel.cpp": 'const int x = 1; // a < b\nputs("hi");', "sources/ka_cpu.h": "// ours" },
};

test("a report takes figures, candidates and the user's own sources from the records", () => {
    const report = reportOf(answer, null);
    assert.equal(report.title, "gated.py:Gated");
    assert.equal(report.timing?.vsCompile, 1.52);
    assert.deepEqual(report.timing?.vsCompileInterval, [1.5, 1.55]);
    assert.equal(report.accuracy?.inputs, 10);
    assert.deepEqual(
        report.candidates.map((one) => [one.turn, one.outcome, one.ms]),
        [
            [1, "correct", 1.746],
            [1, "compile_error", null],
        ],
    );
    assert.deepEqual(
        report.sources.map((one) => one.name),
        ["kernel.cpp"],
    );
    assert.deepEqual(Object.keys(report.candidates[0]?.sources ?? {}), ["kernel.cpp"]);
    assert.equal(report.bandwidthFrom, "measured");
    assert.equal(report.stop, "no progress");
});

test("both verdicts are told, a gain over eager alone can be applied, and a search's figures are said to be such", () => {
    const verdicts = [
        ["over torch.compile", "no gain, 1.00× (0.99–1.01)"],
        ["over eager", "a gain, 1.87× (1.81–1.93)"],
    ];
    const result = { ...row.result, outcome: "no_measurable_gain", gain_over: "eager", best: { policy: "generator" } };
    const title = "Apply (torch.compile alone gives more)";
    const eager = pageOf(reportOf({ ...answer, result, verdicts, offer: "possible", applyTitle: title }, null));
    assert.match(eager, /Apply \(torch\.compile alone gives more\)/);
    assert.match(eager, /no gain, 1\.00× \(0\.99–1\.01\)/);
    assert.doesNotMatch(eager, /not confirmed/);
    const obstacles = [
        ["failed check", "verify: incorrect at out0[3]"],
        ["try", "--numerics paper"],
    ];
    assert.match(pageOf(reportOf({ ...answer, obstacles }, null)), /verify: incorrect at out0\[3\]/);
    const spent = "3 requests, 12.1k tokens in, 1.2k out";
    assert.match(pageOf(reportOf({ ...answer, spent }, null)), /model: 3 requests, 12\.1k tokens in/);
    assert.doesNotMatch(pageOf(reportOf(answer, null)), /model: /);
    const cut = { ...row.result, outcome: "cancelled", best: null };
    const page = pageOf(reportOf({ ...answer, result: cut, offer: "none", unconfirmed: true }, null));
    assert.match(page, /Figures of the search, not confirmed/);
    assert.match(page, /data-command="confirm">Verify in Full/);
    assert.doesNotMatch(page, /data-command="apply"/);
});

test("nothing of a job but its number is enough for a page", () => {
    const page = pageOf(
        reportOf(
            { id: "9", state: "failed", error: "no GPU", task: { path: "/a.py", class_name: "A" }, evaluation: null },
            null,
        ),
    );
    assert.match(page, /no GPU/);
    assert.doesNotMatch(page, /NaN|undefined|null/);
});

test("the report of an earlier version of the class says so and offers nothing to apply", () => {
    const page = pageOf(reportOf({ ...answer, stale: "Gate was edited since job 9" }, null));
    assert.match(page, /Gate was edited since job 9: what follows is of the text that it ran/);
    assert.doesNotMatch(page, /data-command="apply"/);
    assert.match(pageOf(reportOf(answer, null)), /data-command="apply"/);
});

test("the page has every part, and nothing that its content policy forbids", () => {
    const page = pageOf(reportOf(answer, null));
    for (const part of [
        "measurably faster",
        "1.52×",
        "1.50–1.55",
        "79% of the roofline",
        "Candidates (2, fastest first)",
        "registers",
        "float64",
    ]) {
        assert.ok(page.includes(part), part);
    }
    assert.doesNotMatch(page, /style=|<script|\son\w+=|https?:/);
    assert.doesNotMatch(page, /NaN|undefined/);
});

test("messages and sources are text, never markup", () => {
    const page = pageOf(reportOf(answer, null));
    assert.ok(page.includes("expected &#39;;&#39; &#60;here&#62;"));
    assert.ok(!page.includes("<here>"));
    assert.equal(highlighted("a<b // <i>"), 'a&#60;b <span class="comment">// &#60;i&#62;</span>');
});

test("PTX and SASS stand beside the source; what could not be made says why", () => {
    const onGpu = { ...answer, result: { ...row.result, target: "cuda" } };
    assert.match(pageOf(reportOf(onGpu, null)), /PTX and SASS are being made/);
    const files = { "kernels.sm_90.ptx": ".entry <f>" };
    const page = pageOf(reportOf(onGpu, { files, missing: ["no kernels.sm_90.sass: nvdisasm was not found"] }));
    assert.match(page, /class="code beside"/);
    assert.match(page, /kernels\.sm_90\.ptx/);
    assert.ok(page.includes(".entry &#60;f&#62;") && page.includes("nvdisasm was not found"));
    assert.doesNotMatch(page, /being made/);
});

test("plots keep their points inside, lower times lower, and say nothing of nothing", () => {
    const points = [
        { x: 1, y: 2, title: "slow", kind: "ours" },
        { x: 2, y: 1, title: "fast", kind: "ours" },
    ];
    const drawn = speedByTurn(points, [{ y: 4, name: "eager", kind: "eager" }]);
    const at = [...drawn.matchAll(/cx="([\d.]+)" cy="([\d.]+)"/g)].map(
        (found) => [Number(found[1]), Number(found[2])] as const,
    );
    assert.equal(at.length, 2);
    assert.ok(at.every(([x, y]) => x > 60 && x < 460 && y > 0 && y < 215));
    assert.ok((at[1]?.[1] ?? 0) > (at[0]?.[1] ?? 0));
    assert.match(
        speedByTurn(
            [
                { x: 1, y: 3, title: "", kind: "ours" },
                { x: 1, y: 1.4, title: "", kind: "ours" },
            ],
            [],
        ),
        />1\.5 ms</,
    );
    assert.equal(speedByTurn([], []), "");
    const roof = roofline(75e6, 52e9, [
        { x: 75e6, y: 5.8, title: "eager", kind: "eager" },
        { x: 75e6, y: 1.7, title: "ours", kind: "ours" },
    ]);
    assert.doesNotMatch(roof, /NaN|Infinity/);
    assert.match(roof, /class="roof"/);
});

test("a single candidate and a device without known bandwidth still make a page", () => {
    const page = pageOf(reportOf({ ...answer, deviceFacts: {} }, null));
    assert.doesNotMatch(page, /aria-label="Roofline"/);
    assert.match(page, /aria-label="Speed by turn"/);
});

test("occupancy is that of NVIDIA's calculator", () => {
    // Threads, registers, shared memory and the limit on blocks each decide once.
    assert.equal(occupancy("sm_90", 256, 32, 0), 1);
    assert.equal(occupancy("sm_90", 256, 40, 0), 0.75);
    assert.equal(occupancy("sm_90", 256, 32, 100 * 1024), 0.25);
    assert.equal(occupancy("sm_90a", 32, 16, 0), 0.5);
    assert.equal(occupancy("x86-64-avx512", 256, 32, 0), null);
});

test("a kernel's occupancy comes from its own launch", () => {
    const launches = [{ symbol: "rows", block: ["256", "1", "1"], shared: "0" }];
    const steps = [
        {
            turn: 1,
            candidates: [{ plan: { launches }, sources: {} }],
            evaluations: [{ candidate: "w", outcome: "correct" }],
        },
    ];
    const evaluation = { ...answer.evaluation, candidate: "w" };
    const [kernel] = reportOf({ ...answer, steps, evaluation, deviceFacts: { arch: "sm_90" } }, null).kernels;
    assert.deepEqual([kernel?.threads, kernel?.occupancy], [256, 0.75]);
});
