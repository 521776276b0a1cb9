// Every job that this window hears of: a notification with progress and Cancel while it runs, a message at its end.

import * as vscode from "vscode";
import { isLast, type JobView } from "../protocol.ts";
import type { Server } from "../server.ts";
import { telling } from "../tell.ts";
import { ending, line, title } from "./state.ts";

interface Shown {
    readonly report: (view: JobView, increment: number) => void;
    readonly close: () => void;
}

export class Jobs implements vscode.Disposable {
    private readonly changed = new vscode.EventEmitter<JobView>();
    readonly onChange = this.changed.event;
    private readonly views = new Map<string, JobView>();
    private readonly shown = new Map<string, Shown>();
    private readonly subscriptions: vscode.Disposable[];
    private readonly server: Server;

    constructor(server: Server) {
        this.server = server;
        this.subscriptions = [
            server.onJob((view) => this.take(view)),
            // A server that starts again tells of its jobs again; until then nothing is known of them.
            server.onPhase((phase) => phase !== "running" && this.forget()),
        ];
    }

    get all(): readonly JobView[] {
        return [...this.views.values()];
    }

    get active(): readonly JobView[] {
        return this.all.filter((view) => !isLast(view.state));
    }

    async cancel(view: JobView): Promise<void> {
        await telling(() =>
            this.server.execute("kernelAssistant.cancel", { uri: view.uri, class: view.class, job: view.job }),
        );
    }

    dispose(): void {
        this.forget();
        for (const subscription of this.subscriptions) subscription.dispose();
    }

    private take(view: JobView): void {
        const before = this.views.get(view.job);
        if (before && isLast(before.state) && isLast(view.state)) return;
        this.views.set(view.job, view);
        if (!isLast(view.state)) {
            if (!this.shown.has(view.job)) this.open(view);
            this.shown.get(view.job)?.report(view, Math.max(0, view.percent - (before?.percent ?? 0)));
        } else {
            this.shown.get(view.job)?.close();
            // What ended before this window heard of it is told by its lens.
            if (before) void this.tellEnd(view);
        }
        this.changed.fire(view);
    }

    private open(view: JobView): void {
        let close = (): void => undefined;
        const ended = new Promise<void>((resolve) => (close = resolve));
        const options = { location: vscode.ProgressLocation.Notification, cancellable: true, title: title(view) };
        void vscode.window.withProgress(options, async (progress, token) => {
            token.onCancellationRequested(() => void this.cancel(this.views.get(view.job) ?? view));
            this.shown.set(view.job, {
                report: (now, increment) => progress.report({ message: line(now), increment }),
                close,
            });
            await ended;
            this.shown.delete(view.job);
        });
    }

    private async tellEnd(view: JobView): Promise<void> {
        const ref = { uri: view.uri, class: view.class };
        const here = vscode.window.activeTextEditor?.document.uri.toString() === vscode.Uri.parse(view.uri).toString();
        const { kind, text, choices, review } = ending(view, here);
        if (review) void vscode.commands.executeCommand("kernelAssistant.diff", ref);
        const show = {
            information: vscode.window.showInformationMessage,
            warning: vscode.window.showWarningMessage,
            error: vscode.window.showErrorMessage,
        };
        const chosen = await show[kind](text, ...choices);
        const commands = {
            Apply: "kernelAssistant.apply",
            "Review Changes": "kernelAssistant.diff",
            "Verify in Full": "kernelAssistant.confirm",
            "Show Report": "kernelAssistant.show",
            Discard: "kernelAssistant.discard",
            "Show Log": "kernelAssistant.showLog",
            "Try Again": "kernelAssistant.optimize",
            "Give It Inputs": "kernelAssistant.inputs",
        } as const;
        if (chosen) await vscode.commands.executeCommand(commands[chosen], ref);
    }

    private forget(): void {
        for (const shown of this.shown.values()) shown.close();
        this.views.clear();
    }
}
