// The device as a tree: what it is, how busy, how full, and what runs on it.

import * as vscode from "vscode";
import { bytes, percent } from "../format.ts";
import { line } from "../jobs/state.ts";
import type { Jobs } from "../jobs/tracker.ts";
import type { Status } from "../protocol.ts";
import type { Server } from "../server.ts";

interface Row {
    readonly label: string;
    readonly value: string;
    readonly icon: string;
}

export class DeviceView implements vscode.TreeDataProvider<Row>, vscode.Disposable {
    private readonly changed = new vscode.EventEmitter<void>();
    readonly onDidChangeTreeData = this.changed.event;
    private status: Status | null = null;
    private readonly subscriptions: vscode.Disposable[];
    private readonly jobs: Jobs;

    constructor(server: Server, jobs: Jobs) {
        this.jobs = jobs;
        const view = vscode.window.createTreeView("kernelAssistant.device", { treeDataProvider: this });
        // Nobody looks and nothing runs: the server need not ask the device every two seconds.
        const watch = (): void =>
            void server.watchStatus(view.visible || jobs.active.length > 0 || this.status === null);
        this.subscriptions = [
            view,
            view.onDidChangeVisibility(watch),
            jobs.onChange(() => (watch(), this.changed.fire())),
            server.onPhase((phase) => {
                if (phase !== "running") this.status = null;
                watch();
                this.changed.fire();
            }),
            server.onStatus((status) => {
                this.status = status;
                watch();
                this.changed.fire();
            }),
        ];
        watch();
    }

    getTreeItem(row: Row): vscode.TreeItem {
        const item = new vscode.TreeItem(row.label);
        item.description = row.value;
        item.tooltip = `${row.label}: ${row.value}`;
        item.iconPath = new vscode.ThemeIcon(row.icon);
        return item;
    }

    getChildren(): Row[] {
        const status = this.status;
        if (!status) return [];
        const rows: Row[] = [{ label: "Device", value: status.device, icon: "chip" }];
        if (status.utilisation !== null)
            rows.push({ label: "Utilisation", value: percent(status.utilisation), icon: "pulse" });
        if (status.memory_total)
            rows.push({
                label: "Memory",
                value: `${bytes(status.memory_used)} of ${bytes(status.memory_total)}`,
                icon: "database",
            });
        const active = this.jobs.active;
        if (active.length === 0)
            rows.push({ label: "Running", value: status.running ?? "nothing", icon: "circle-outline" });
        for (const view of active)
            rows.push({ label: view.class, value: line(view), icon: view.state === "running" ? "sync~spin" : "clock" });
        return rows;
    }

    dispose(): void {
        for (const subscription of this.subscriptions) subscription.dispose();
    }
}
