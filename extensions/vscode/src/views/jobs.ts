// Jobs as a tree: those that run with what they have found, those that ended with their outcome.

import * as vscode from "vscode";
import { times } from "../format.ts";
import { line, type JobView } from "../jobs/state.ts";
import type { Jobs } from "../jobs/tracker.ts";
import { isLast, type ClassRef } from "../protocol.ts";
import type { Server } from "../server.ts";

/** A line of the tree. Commands get it as their first argument, so it is a class reference as well. */
export interface JobRow extends ClassRef {
    readonly job: string;
    readonly text: string;
    readonly active: boolean;
    readonly good: boolean;
}

export class JobsView implements vscode.TreeDataProvider<JobRow>, vscode.Disposable {
    private readonly changed = new vscode.EventEmitter<void>();
    readonly onDidChangeTreeData = this.changed.event;
    private readonly subscriptions: vscode.Disposable[];
    private readonly server: Server;
    private readonly jobs: Jobs;

    constructor(server: Server, jobs: Jobs) {
        this.server = server;
        this.jobs = jobs;
        this.subscriptions = [
            vscode.window.registerTreeDataProvider("kernelAssistant.jobs", this),
            jobs.onChange(() => this.changed.fire()),
            server.onPhase(() => this.changed.fire()),
        ];
    }

    getTreeItem(row: JobRow): vscode.TreeItem {
        const item = new vscode.TreeItem(row.class);
        item.description = row.text;
        item.tooltip = `job ${row.job}: ${row.text}`;
        item.contextValue = row.active ? "active" : "ended";
        item.iconPath = new vscode.ThemeIcon(row.active ? "sync~spin" : row.good ? "pass" : "circle-outline");
        item.command = { command: "kernelAssistant.show", title: "Show Report", arguments: [row] };
        return item;
    }

    async getChildren(): Promise<JobRow[]> {
        if (this.server.phase !== "running") return [];
        const live = this.jobs.all.map(rowOfView);
        const known = new Set(live.map((row) => row.job));
        return [...live.reverse(), ...(await this.earlier()).filter((row) => !known.has(row.job))];
    }

    dispose(): void {
        for (const subscription of this.subscriptions) subscription.dispose();
    }

    private async earlier(): Promise<JobRow[]> {
        try {
            return rowsOf(await this.server.execute<unknown>("kernelAssistant.jobs", {}));
        } catch (error) {
            this.server.log.warn(`jobs: ${String(error)}`);
            return [];
        }
    }
}

const rowOfView = (view: JobView): JobRow => ({
    job: view.job,
    uri: view.uri,
    class: view.class,
    text: line(view) || view.state,
    active: !isLast(view.state),
    good: view.outcome === "improved",
});

/** From the answer to `kernelAssistant.jobs`: rows of the store. */
function rowsOf(answer: unknown): JobRow[] {
    const rows = Array.isArray(answer) ? (answer as Record<string, unknown>[]) : [];
    return rows.map((row) => {
        const result = row["result"] as {
            outcome?: string;
            best?: { speedup_vs_compile: number | null; speedup_vs_eager: number } | null;
        } | null;
        const outcome = result?.outcome ?? "";
        const best = result?.best;
        const gain = best
            ? best.speedup_vs_compile === null
                ? `${times(best.speedup_vs_eager)} vs eager`
                : `${times(best.speedup_vs_compile)} vs torch.compile`
            : "";
        const when =
            typeof row["ended"] === "number" && row["ended"] ? new Date(row["ended"] * 1000).toLocaleString() : "";
        return {
            job: String(row["job"]),
            uri: String(row["uri"]),
            class: String(row["class"]),
            text: [gain || (outcome || String(row["state"])).replaceAll("_", " "), when].filter(Boolean).join(" · "),
            active: row["state"] === "running" || row["state"] === "queued",
            good: outcome === "improved",
        };
    });
}
