// What the result page shows, taken from the records of the store. No VS Code in here.

import { type Assembly, type Offer, offerOf } from "../protocol.ts";
import { occupancy } from "./occupancy.ts";

export interface Candidate {
    readonly turn: number;
    readonly id: string;
    readonly outcome: string;
    readonly ms: number | null;
    readonly speedup: number | null;
    readonly note: string;
    readonly origin: string;
    readonly sources: Readonly<Record<string, string>>;
}

export interface Kernel {
    readonly symbol: string;
    readonly registers: number;
    readonly sharedBytes: number;
    readonly spillBytes: number;
    /** Threads of a block, null where it depends on sizes. */
    readonly threads: number | null;
    readonly occupancy: number | null;
}

export interface Accuracy {
    readonly error: number;
    readonly referenceError: number;
    readonly ratio: number;
    readonly relative: number;
    readonly inputs: number;
    readonly shapes: number;
    readonly reproducible: boolean;
    readonly reference: string;
}

export interface Timing {
    readonly ms: number;
    readonly eagerMs: number;
    readonly compileMs: number | null;
    readonly vsEager: number;
    readonly vsCompile: number | null;
    readonly vsEagerInterval: readonly [number, number] | null;
    readonly vsCompileInterval: readonly [number, number] | null;
    readonly floorMs: number;
    readonly roofline: number;
    readonly warning: string;
}

export interface FreeWin {
    readonly name: string;
    readonly write: string;
    readonly ms: number | null;
    readonly vsCompile: number | null;
    readonly passes: boolean;
    readonly note: string;
}

/** A text of the winner with what the compiler made of it. */
export interface Source {
    readonly name: string;
    readonly text: string;
}

export interface Report {
    readonly job: string;
    readonly state: string;
    readonly title: string;
    readonly device: string;
    readonly target: string;
    readonly outcome: string;
    /** What it came to in words. */
    readonly verdict: string;
    /** Name and words of each verdict, as every front end tells them. */
    readonly verdicts: readonly (readonly [string, string])[];
    readonly offer: Offer;
    /** Title of the action that applies it. */
    readonly applyTitle: string;
    /** Checks that failed, each with what to try. */
    readonly obstacles: readonly (readonly [string, string])[];
    readonly unconfirmed: boolean;
    /** The figures were measured in full; those of a search are said to be such. */
    readonly confirmed: boolean;
    readonly stop: string;
    /** Requests, tokens and money of its model, in words; "" without one. */
    readonly spent: string;
    readonly error: string;
    /** That the class was edited since, "" where it is as the job ran it. */
    readonly stale: string;
    readonly seconds: number | null;
    readonly precision: string;
    readonly share: number | null;
    readonly residual: readonly string[];
    readonly bandwidth: number | null;
    readonly bandwidthFrom: "measured" | "datasheet" | null;
    readonly accuracy: Accuracy | null;
    readonly timing: Timing | null;
    readonly kernels: readonly Kernel[];
    readonly candidates: readonly Candidate[];
    readonly freeWins: readonly FreeWin[];
    readonly sources: readonly Source[];
    readonly assembly: readonly Source[];
    /** Why texts are not there; null while they are being made. */
    readonly assemblyMissing: readonly string[] | null;
}

type Json = Record<string, unknown>;

const json = (value: unknown): Json =>
    typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Json) : {};
const list = (value: unknown): Json[] => (Array.isArray(value) ? value.map(json) : []);
const text = (value: unknown): string => (typeof value === "string" ? value : "");
const number = (value: unknown): number | null => (typeof value === "number" && Number.isFinite(value) ? value : null);
const interval = (value: unknown): [number, number] | null => {
    const [low, high] = Array.isArray(value) ? value.map(number) : [];
    return low !== null && low !== undefined && high !== null && high !== undefined ? [low, high] : null;
};

const pairs = (value: unknown): [string, string][] =>
    (Array.isArray(value) ? value : []).map((pair: unknown): [string, string] => {
        const [name, words] = Array.isArray(pair) ? pair.map(text) : [];
        return [name ?? "", words ?? ""];
    });

/** From the answer to `kernelAssistant.show`, and to `kernelAssistant.assembly` once there is one. */
export function reportOf(answer: unknown, assembly: Assembly | null): Report {
    const row = json(answer);
    const told = Object.entries(json(row["sources"])).map(([name, content]): [string, string] => [name, text(content)]);
    const files: Record<string, string> = Object.fromEntries(told);
    const task = json(row["task"]);
    const result = json(row["result"]);
    const evaluation = json(row["evaluation"]);
    const device = json(row["deviceFacts"]);
    const measured = number(device["copy_bandwidth"]) || null;
    const datasheet = number(device["bandwidth_datasheet"]) || null;
    return {
        job: text(row["id"]),
        state: text(row["state"]),
        title: `${text(task["path"]).split("/").at(-1) ?? ""}:${text(task["class_name"])}`,
        device: text(result["device"]) || text(device["name"]) || text(row["device"]),
        target: text(result["target"]) || text(task["target"]),
        outcome: text(result["outcome"]),
        verdict: text(row["verdict"]),
        verdicts: pairs(row["verdicts"]),
        offer: offerOf(row["offer"]),
        applyTitle: text(row["applyTitle"]) || "Apply",
        obstacles: pairs(row["obstacles"]),
        unconfirmed: row["unconfirmed"] === true,
        confirmed: Object.keys(json(result["best"])).length > 0,
        stop: text(result["stop_reason"]).replaceAll("_", " "),
        spent: text(row["spent"]),
        error: text(row["error"]),
        stale: text(row["stale"]),
        seconds: number(result["seconds"]),
        precision: text(evaluation["precision"]),
        share: number(evaluation["share_in_our_kernels"]),
        residual: Array.isArray(evaluation["residual"]) ? evaluation["residual"].map(String) : [],
        bandwidth: measured ?? datasheet,
        bandwidthFrom: measured ? "measured" : datasheet ? "datasheet" : null,
        accuracy: accuracyOf(json(evaluation["accuracy"])),
        timing: timingOf(json(evaluation["timing"])),
        kernels: kernelsOf(
            list(evaluation["resources"]),
            winner(list(row["steps"]), text(evaluation["candidate"])),
            text(device["arch"]),
        ),
        candidates: candidatesOf(list(row["steps"])),
        freeWins: list(result["free_wins"]).map(freeWinOf),
        sources: named(files, isOwnSource),
        assembly: named(shortened(assembly?.files ?? {}), () => true),
        assemblyMissing: assembly === null ? null : assembly.missing,
    };
}

/** A source that was written for this job, not one of the headers that every candidate gets. */
export const isOwnSource = (name: string): boolean => /\.(cu|cuh|cpp|h)$/.test(name) && !/(^|\/)ka[_/]/.test(name);

/** Longer texts are cut: nobody reads them in a page, and it would be slow. */
const MOST_CHARACTERS = 400_000;
const shortened = (files: Readonly<Record<string, string>>): Record<string, string> =>
    Object.fromEntries(Object.entries(files).map(([name, content]) => [name, content.slice(0, MOST_CHARACTERS)]));

function accuracyOf(from: Json): Accuracy | null {
    const error = number(from["error"]);
    if (error === null) return null;
    return {
        error,
        referenceError: number(from["reference_error"]) ?? 0,
        ratio: number(from["error_ratio"]) ?? 0,
        relative: number(from["relative_error"]) ?? 0,
        inputs: number(from["inputs_tried"]) ?? 0,
        shapes: number(from["shapes_tried"]) ?? 0,
        reproducible: from["bit_reproducible"] === true,
        reference: text(from["reference"]) || "f64",
    };
}

function timingOf(from: Json): Timing | null {
    const ms = number(from["candidate_ms"]);
    const eagerMs = number(from["eager_ms"]);
    if (ms === null || eagerMs === null) return null;
    return {
        ms,
        eagerMs,
        compileMs: number(from["compile_ms"]),
        vsEager: number(from["speedup_vs_eager"]) ?? eagerMs / ms,
        vsCompile: number(from["speedup_vs_compile"]),
        vsEagerInterval: interval(from["speedup_vs_eager_ci"]),
        vsCompileInterval: interval(from["speedup_vs_compile_ci"]),
        floorMs: number(from["floor_ms"]) ?? 0,
        roofline: number(from["roofline"]) ?? 0,
        warning: text(from["warning"]),
    };
}

function kernelsOf(resources: readonly Json[], plan: Json, arch: string): Kernel[] {
    const launches = list(plan["launches"]);
    return resources.map((from) => {
        const symbol = text(from["symbol"]);
        const launch = launches.find((one) => one["symbol"] === symbol) ?? {};
        const threads = product(launch["block"]);
        const registers = number(from["registers"]) ?? 0;
        const sharedBytes = (number(from["shared_bytes"]) ?? 0) + (whole(launch["shared"]) ?? 0);
        return {
            symbol,
            registers,
            sharedBytes,
            spillBytes: number(from["spill_bytes"]) ?? 0,
            threads,
            occupancy: threads === null ? null : occupancy(arch, threads, registers, sharedBytes),
        };
    });
}

/** The plan of the candidate that was measured in full. */
function winner(steps: readonly Json[], candidate: string): Json {
    for (const step of steps) {
        const place = list(step["evaluations"]).findIndex(
            (evaluation) => candidate && evaluation["candidate"] === candidate,
        );
        if (place >= 0) return json(list(step["candidates"])[place]?.["plan"]);
    }
    return {};
}

/** An expression of a plan that is a plain number. */
const whole = (expression: unknown): number | null =>
    typeof expression === "string" && /^\d+$/.test(expression) ? Number(expression) : null;

function product(expressions: unknown): number | null {
    const sizes = Array.isArray(expressions) ? expressions.map(whole) : [];
    return sizes.length && sizes.every((size) => size !== null)
        ? sizes.reduce<number>((all, size) => all * (size ?? 1), 1)
        : null;
}

function candidatesOf(steps: readonly Json[]): Candidate[] {
    return steps.flatMap((step) => {
        const candidates = list(step["candidates"]);
        return list(step["evaluations"]).map((evaluation, place) => {
            const candidate = candidates[place] ?? {};
            const timing = timingOf(json(evaluation["timing"]));
            const outcome = text(evaluation["outcome"]);
            const schedule = text(json(candidate["plan"])["schedule"]);
            return {
                turn: number(step["turn"]) ?? 0,
                id: text(evaluation["candidate"]),
                outcome,
                ms: timing?.ms ?? null,
                speedup: timing?.vsCompile ?? null,
                note: outcome === "correct" ? schedule : text(evaluation["message"]),
                origin: text(candidate["origin"]),
                sources: ownSources(json(candidate["sources"])),
            };
        });
    });
}

function ownSources(sources: Json): Record<string, string> {
    const own = Object.entries(sources).filter(([name]) => isOwnSource(name));
    return Object.fromEntries(own.map(([name, content]) => [name, text(content)]));
}

function freeWinOf(from: Json): FreeWin {
    return {
        name: text(from["name"]),
        write: text(from["write"]),
        ms: number(from["ms"]),
        vsCompile: number(from["speedup_vs_compile"]),
        passes: from["passes"] === true,
        note: text(from["note"]),
    };
}

function named(files: Readonly<Record<string, string>>, holds: (name: string) => boolean): Source[] {
    return Object.entries(files)
        .filter(([name]) => holds(name))
        .map(([name, content]) => ({ name: name.split("/").at(-1) ?? name, text: content }));
}
