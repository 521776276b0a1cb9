// Jobs as a tree, by class: those that run with what they have found, those that ended with their outcome.

import * as vscode from "vscode";
import type { Jobs } from "../jobs/tracker.ts";
import type { Server } from "../server.ts";
import { type ClassRow, grouped, type JobRow, label, state } from "./rows.ts";

type Row = ClassRow | JobRow;

const ICONS = { active: "sync~spin", appliable: "pass", ended: "circle-outline" } as const;

export class JobsView implements vscode.TreeDataProvider<Row>, vscode.Disposable {
    private readonly changed = new vscode.EventEmitter<void>();
    readonly onDidChangeTreeData = this.changed.event;
    private readonly subscriptions: vscode.Disposable[];
    private readonly server: Server;
    private readonly jobs: Jobs;

    constructor(server: Server, jobs: Jobs) {
        this.server = server;
        this.jobs = jobs;
        const view = vscode.window.createTreeView("kernelAssistant.jobs", { treeDataProvider: this });
        this.subscriptions = [
            view,
            view.onDidChangeVisibility(() => this.refresh()),
            jobs.onChange(() => this.refresh()),
            server.onPhase(() => this.refresh()),
        ];
    }

    refresh(): void {
        this.changed.fire();
    }

    getTreeItem(row: Row): vscode.TreeItem {
        return "jobs" in row ? itemOfClass(row) : itemOfJob(row);
    }

    async getChildren(row?: Row): Promise<Row[]> {
        if (row) return "jobs" in row ? [...row.jobs] : [];
        if (this.server.phase !== "running") return [];
        return grouped(this.jobs.active, await this.stored());
    }

    dispose(): void {
        for (const subscription of this.subscriptions) subscription.dispose();
    }

    private async stored(): Promise<unknown> {
        try {
            return await this.server.execute<unknown>("kernelAssistant.jobs", {});
        } catch (error) {
            this.server.log.warn(`jobs: ${String(error)}`);
            return [];
        }
    }
}

function itemOfClass(row: ClassRow): vscode.TreeItem {
    const item = new vscode.TreeItem(row.class, vscode.TreeItemCollapsibleState.Expanded);
    item.id = `${row.uri} ${row.class}`;
    item.description = row.file;
    item.contextValue = "class";
    item.iconPath = new vscode.ThemeIcon("symbol-class");
    return item;
}

function itemOfJob(row: JobRow): vscode.TreeItem {
    const item = new vscode.TreeItem(label(row));
    item.id = `job ${row.job}`;
    item.description = row.text;
    item.tooltip = `${row.class}, ${label(row)}: ${row.text}`;
    item.contextValue = state(row);
    item.iconPath = new vscode.ThemeIcon(row.good && !row.active ? "pass" : ICONS[state(row)]);
    item.command = { command: "kernelAssistant.show", title: "Show Report", arguments: [row] };
    return item;
}
