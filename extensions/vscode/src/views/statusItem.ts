// Device, load and running job at the bottom of the window.

import * as vscode from "vscode";
import type { Jobs } from "../jobs/tracker.ts";
import type { Status } from "../protocol.ts";
import type { Server } from "../server.ts";
import { seen, statusText } from "./text.ts";

export function statusItem(server: Server, jobs: Jobs): vscode.Disposable {
    const item = vscode.window.createStatusBarItem("kernelAssistant.status", vscode.StatusBarAlignment.Right, 90);
    let status: Status | null = null;
    item.name = "Kernel Assistant";
    const draw = (): void => {
        const shown = statusText(server.phase, server.problem?.text ?? null, seen(status, server.watched), jobs.active);
        item.text = shown.text;
        item.tooltip = shown.tooltip;
        item.command = shown.command;
        item.backgroundColor = shown.warning ? new vscode.ThemeColor("statusBarItem.warningBackground") : undefined;
        if (server.phase === "stopped") item.hide();
        else item.show();
    };
    const heard = server.onStatus((now) => {
        status = now;
        draw();
    });
    const subscriptions = [item, heard, server.onPhase(draw), server.onWatch(draw), jobs.onChange(draw)];
    draw();
    return vscode.Disposable.from(...subscriptions);
}
