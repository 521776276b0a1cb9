// The result page's content. Pure: a report in, HTML without any inline style or script out.

import { bytes, milliseconds, percent, scientific, times } from "../format.ts";
import { applies } from "../protocol.ts";
import type { Candidate, Report, Source } from "./data.ts";
import { escaped } from "./escape.ts";
import { type Level, type Point, roofline, speedByTurn } from "./plots.ts";

export function pageOf(report: Report): string {
    return [
        head(report),
        obstacles(report),
        figures(report),
        plots(report),
        kernels(report),
        accuracy(report),
        freeWins(report),
        candidates(report),
        code(report),
    ].join("");
}

function head(report: Report): string {
    const verdict = report.error || report.verdict || report.outcome.replaceAll("_", " ") || report.state;
    const good = report.offer === "recommended";
    const stale =
        report.stale && `<p class="warning">${escaped(report.stale)}: what follows is of the text that it ran.</p>`;
    const offered = applies(report.offer)
        ? button("diff", "Review Changes", "primary") + button("apply", escaped(report.applyTitle))
        : report.unconfirmed
          ? button("confirm", "Verify in Full", "primary")
          : "";
    const actions = stale ? "" : offered;
    const meta = [
        `${report.device} (${report.target})`,
        `job ${report.job}`,
        report.seconds === null ? "" : `${report.seconds.toFixed(0)} s`,
        report.stop && `stopped: ${report.stop}`,
        report.spent && `model: ${report.spent}`,
    ];
    return `<header><h1>${escaped(report.title)}</h1><p class="verdict ${good ? "good" : "plain"}">${escaped(verdict)}</p><p class="meta">${escaped(meta.filter(Boolean).join(" · "))}</p>${stale}<nav>${actions}${button("verify", "Verify Again")}</nav></header>`;
}

const button = (command: string, title: string, kind = "secondary"): string =>
    `<button class="${kind}" data-command="${command}">${title}</button>`;

function obstacles(report: Report): string {
    return report.obstacles.length ? section("What stood in the way", table(["", ""], report.obstacles)) : "";
}

function figures(report: Report): string {
    const timing = report.timing;
    if (!timing) return "";
    const rows = [
        ["eager", milliseconds(timing.eagerMs), times(timing.vsEager), range(timing.vsEagerInterval)],
        ["torch.compile", milliseconds(timing.compileMs), times(timing.vsCompile), range(timing.vsCompileInterval)],
        ["ours", milliseconds(timing.ms), "", timing.roofline ? `${percent(timing.roofline)} of the roofline` : ""],
    ];
    const warning = timing.warning ? `<p class="warning">${escaped(timing.warning)}</p>` : "";
    const search = report.confirmed
        ? ""
        : `<p class="warning">Figures of the search, not confirmed on fresh samples.</p>`;
    const verdicts = report.verdicts.length ? table(["", "verdict"], report.verdicts) : "";
    return section(
        "Time",
        table(["", "time", "ours is faster by", "99.9% interval"], rows) + verdicts + search + warning,
    );
}

const range = (interval: readonly [number, number] | null): string =>
    interval ? `${interval[0].toFixed(2)}–${interval[1].toFixed(2)}` : "";

function plots(report: Report): string {
    const timed = report.candidates.filter((candidate) => candidate.ms !== null);
    const points: Point[] = timed.map((candidate) => ({
        x: candidate.turn,
        y: candidate.ms ?? 0,
        kind: candidate.outcome === "correct" ? "ours" : "wrong",
        title: `turn ${candidate.turn}: ${milliseconds(candidate.ms)} ${candidate.note}`,
    }));
    const speed = speedByTurn(points, levelsOf(report));
    const roof = roofOf(report);
    const drawn = [
        speed && figure(speed, "Time of each candidate; the line is the best so far (figures of the search)."),
        roof,
    ];
    return drawn.some(Boolean) ? section("Search", `<div class="plots">${drawn.join("")}</div>`) : "";
}

function levelsOf(report: Report): Level[] {
    const timing = report.timing;
    if (!timing) return [];
    const levels: Level[] = [{ y: timing.eagerMs, name: "eager", kind: "eager" }];
    if (timing.compileMs !== null) levels.push({ y: timing.compileMs, name: "torch.compile", kind: "compile" });
    if (timing.floorMs) levels.push({ y: timing.floorMs, name: "roofline", kind: "floor" });
    return levels;
}

function roofOf(report: Report): string {
    const { timing, bandwidth } = report;
    if (!timing?.floorMs || !bandwidth) return "";
    // What the judge's floor stands for, in bytes: the two can then not disagree on the page.
    const moved = (timing.floorMs / 1000) * bandwidth;
    const points: Point[] = [
        { x: moved, y: timing.eagerMs, kind: "eager", title: "eager" },
        ...(timing.compileMs === null
            ? []
            : [{ x: moved, y: timing.compileMs, kind: "compile", title: "torch.compile" }]),
        { x: moved, y: timing.ms, kind: "ours", title: "ours" },
    ];
    const rate = `${(bandwidth / 1e9).toFixed(0)} GB/s, ${report.bandwidthFrom}`;
    return figure(
        roofline(moved, bandwidth, points),
        `Line: memory of ${report.device} (${rate}). Nothing correct lies below it.`,
    );
}

const figure = (drawing: string, caption: string): string =>
    `<figure>${drawing}<figcaption>${escaped(caption)}</figcaption></figure>`;

function kernels(report: Report): string {
    if (report.kernels.length === 0) return "";
    const rows = report.kernels.map((kernel) => [
        kernel.symbol,
        kernel.threads === null ? "by size" : String(kernel.threads),
        String(kernel.registers),
        bytes(kernel.sharedBytes),
        kernel.spillBytes ? bytes(kernel.spillBytes) : "none",
        kernel.occupancy === null ? "–" : percent(kernel.occupancy),
    ]);
    return section(
        "Kernels",
        table(["kernel", "threads of a block", "registers", "shared memory", "spills", "occupancy"], rows),
    );
}

function accuracy(report: Report): string {
    const found = report.accuracy;
    if (!found) return "";
    const against = found.reference === "f64" ? "float64" : found.reference;
    const rows = [
        [
            "largest error",
            scientific(found.error),
            `${found.ratio.toPrecision(2)} times PyTorch's own (${scientific(found.referenceError)})`,
        ],
        ["relative error", scientific(found.relative), "‖candidate − reference‖₂ / ‖reference‖₂"],
        [
            "tried",
            `${found.inputs} inputs, ${found.shapes} shapes`,
            found.reproducible ? "bit-reproducible" : "not bit-reproducible",
        ],
        [
            "in our kernels",
            percent(report.share),
            report.residual.length ? `PyTorch's own calls: ${report.residual.join(", ")}` : report.precision || "",
        ],
    ];
    return section(`Error against ${against}`, table(["", "", ""], rows));
}

function freeWins(report: Report): string {
    const measured = report.freeWins.filter((win) => win.ms !== null);
    if (measured.length === 0) return "";
    const rows = measured.map((win) => [
        win.name,
        milliseconds(win.ms),
        times(win.vsCompile),
        win.passes ? win.write : `not equal: ${win.note}`,
    ]);
    return section("Without a kernel", table(["change", "time", "vs torch.compile", "how"], rows));
}

function candidates(report: Report): string {
    if (report.candidates.length === 0) return "";
    const ordered = report.candidates
        .map((candidate, place) => ({ candidate, place }))
        .sort((a, b) => order(a.candidate) - order(b.candidate));
    const rows = ordered.map(({ candidate, place }) => {
        const cells = [
            String(candidate.turn),
            candidate.id.slice(0, 8),
            candidate.outcome.replaceAll("_", " "),
            milliseconds(candidate.ms),
            times(candidate.speedup),
            candidate.note,
        ];
        const tone = candidate.outcome === "correct" ? "right" : "wrong";
        return `<tr class="${tone}" tabindex="0" data-candidate="${place}" title="Show its source">${cells.map((cell) => `<td>${escaped(cell)}</td>`).join("")}</tr>`;
    });
    const titles = ["turn", "candidate", "outcome", "time", "vs torch.compile", "schedule or message"];
    return section(
        `Candidates (${rows.length}, fastest first)`,
        `<table class="candidates">${header(titles)}<tbody>${rows.join("")}</tbody></table>`,
    );
}

const order = (candidate: Candidate): number =>
    candidate.outcome === "correct" ? (candidate.ms ?? Infinity) : Infinity;

function code(report: Report): string {
    if (report.sources.length === 0) return "";
    const left = panes("source", report.sources);
    const right = report.assembly.length ? panes("assembly", report.assembly) : "";
    return section("Source", `<div class="code${right ? " beside" : ""}">${left}${right}</div>${assemblyHint(report)}`);
}

function assemblyHint(report: Report): string {
    const what = report.target === "cuda" ? "PTX and SASS are" : "Assembly is";
    const lines = report.assemblyMissing ?? [`${what} being made.`];
    return lines.map((line) => `<p class="meta">${escaped(line)}</p>`).join("");
}

function panes(group: string, sources: readonly Source[]): string {
    const tabs = sources.map(
        (source, place) =>
            `<button role="tab" class="tab" data-group="${group}" data-pane="${place}" aria-selected="${place === 0}">${escaped(source.name)}</button>`,
    );
    const bodies = sources.map(
        (source, place) =>
            `<pre data-group="${group}" data-body="${place}"${place === 0 ? "" : " hidden"}>${highlighted(source.text)}</pre>`,
    );
    return `<div class="pane"><div role="tablist">${tabs.join("")}</div>${bodies.join("")}</div>`;
}

const TOKENS =
    /(\/\/[^\n]*|\/\*[\s\S]*?\*\/)|("(?:[^"\\\n]|\\.)*")|(^[ \t]*#[^\n]*)|\b(const|constexpr|static|inline|struct|template|typename|for|while|if|else|return|void|int|int64_t|int32_t|float|double|bool|auto|__global__|__device__|__shared__|__restrict__|extern|namespace|using|unsigned|char|size_t|sizeof)\b|\b(\d[\w.]*)\b/gm;

/** C++ as far as a reader needs it: comments, strings, directives, keywords, numbers. */
export function highlighted(source: string): string {
    const kinds = ["comment", "string", "directive", "keyword", "number"];
    let out = "";
    let last = 0;
    for (const match of source.matchAll(TOKENS)) {
        const kind = kinds[match.slice(1).findIndex((group) => group !== undefined)];
        out += `${escaped(source.slice(last, match.index))}<span class="${kind}">${escaped(match[0])}</span>`;
        last = match.index + match[0].length;
    }
    return out + escaped(source.slice(last));
}

const section = (title: string, body: string): string => `<section><h2>${escaped(title)}</h2>${body}</section>`;

function table(titles: readonly string[], rows: readonly (readonly string[])[]): string {
    const body = rows.map((row) => `<tr>${row.map((cell) => `<td>${escaped(cell)}</td>`).join("")}</tr>`).join("");
    return `<table>${titles.some(Boolean) ? header(titles) : ""}<tbody>${body}</tbody></table>`;
}

const header = (titles: readonly string[]): string =>
    `<thead><tr>${titles.map((title) => `<th>${escaped(title)}</th>`).join("")}</tr></thead>`;
