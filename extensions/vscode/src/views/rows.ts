// Jobs as lines of a tree, grouped by class. No VS Code in here.

import { line } from "../jobs/state.ts";
import { type JobRef, type JobView, offerOf } from "../protocol.ts";

/** A job. Commands get it as their first argument, so it is a reference as well. */
export interface JobRow extends JobRef {
    readonly kind: string;
    readonly text: string;
    readonly active: boolean;
    readonly good: boolean;
    /** Its file takes its kernels as it is. */
    readonly appliable: boolean;
}

/** A class with its jobs, those that run first, then the newest. */
export interface ClassRow {
    readonly uri: string;
    readonly class: string;
    readonly file: string;
    readonly jobs: readonly JobRow[];
}

const DOING: Record<string, string> = { verify: "verify", profile: "timing", check: "check", lines: "line by line" };

export const label = (row: JobRow): string => [`job ${row.job}`, DOING[row.kind]].filter(Boolean).join(", ");

/** What can be done with a job: the menus of the tree ask for it. */
export const state = (row: JobRow): "active" | "appliable" | "ended" =>
    row.active ? "active" : row.appliable ? "appliable" : "ended";

/** Jobs that run as they tell of themselves; all others as the store has them. */
export function grouped(views: readonly JobView[], answer: unknown): ClassRow[] {
    const live = views.map(rowOfView);
    const known = new Set(live.map((row) => row.job));
    const rows = [...live.reverse(), ...rowsOf(answer).filter((row) => !known.has(row.job))];
    const groups = new Map<string, ClassRow & { readonly jobs: JobRow[] }>();
    for (const row of rows) {
        const key = `${row.uri} ${row.class}`;
        const file = decodeURIComponent(row.uri.split("/").at(-1) ?? "");
        const group = groups.get(key) ?? { uri: row.uri, class: row.class, file, jobs: [] };
        groups.set(key, group);
        group.jobs.push(row);
    }
    return [...groups.values()];
}

const rowOfView = (view: JobView): JobRow => ({
    job: view.job,
    uri: view.uri,
    class: view.class,
    kind: view.kind,
    text: line(view) || view.state,
    active: true,
    good: false,
    appliable: false,
});

/** From the answer to `kernelAssistant.jobs`: rows of the store. */
function rowsOf(answer: unknown): JobRow[] {
    const rows = Array.isArray(answer) ? (answer as Record<string, unknown>[]) : [];
    return rows.map((row) => {
        const result = row["result"] as { outcome?: string } | null;
        const outcome = result?.outcome ?? "";
        // Empty where nothing is offered: what was not confirmed is no gain, whatever the search has measured.
        const gain = String(row["figure"] ?? "");
        const when =
            typeof row["ended"] === "number" && row["ended"] ? new Date(row["ended"] * 1000).toLocaleString() : "";
        return {
            job: String(row["job"]),
            uri: String(row["uri"]),
            class: String(row["class"]),
            kind: String(row["kind"] ?? "optimize"),
            text: [gain || (outcome || String(row["state"])).replaceAll("_", " "), when].filter(Boolean).join(" · "),
            active: row["state"] === "running" || row["state"] === "queued",
            good: offerOf(row["offer"]) === "recommended",
            appliable: row["appliable"] === true,
        };
    });
}
