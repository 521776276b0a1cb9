// The user's file beside the proposed one, and what is decided about it.

import * as vscode from "vscode";
import type { ClassRef, Proposal } from "./protocol.ts";
import { isOwnSource } from "./report/data.ts";
import type { Server } from "./server.ts";
import { telling } from "./tell.ts";

export const SCHEME = "kernel-assistant";

export class Review implements vscode.TextDocumentContentProvider, vscode.Disposable {
    private readonly changed = new vscode.EventEmitter<vscode.Uri>();
    readonly onDidChange = this.changed.event;
    private readonly texts = new Map<string, { readonly text: string; readonly ref: ClassRef }>();
    private readonly subscription: vscode.Disposable;
    private readonly server: Server;

    constructor(server: Server) {
        this.server = server;
        this.subscription = vscode.workspace.registerTextDocumentContentProvider(SCHEME, this);
    }

    provideTextDocumentContent(uri: vscode.Uri): string {
        return this.texts.get(uri.toString())?.text ?? "";
    }

    async open(ref: ClassRef): Promise<void> {
        const proposal = await telling(() => this.server.execute<Proposal>("kernelAssistant.diff", ref));
        if (!proposal) return;
        const file = vscode.Uri.parse(ref.uri);
        const proposed = proposalUri(ref);
        this.texts.set(proposed.toString(), { text: proposal.after, ref });
        this.changed.fire(proposed);
        await vscode.commands.executeCommand("vscode.diff", file, proposed, proposal.title, { preview: true });
    }

    /** The sources of the proposed kernels, beside what is looked at. */
    async kernels(ref: ClassRef): Promise<void> {
        const proposal = await telling(() => this.server.execute<Proposal>("kernelAssistant.diff", ref));
        const own = Object.entries(proposal?.kernels ?? {}).filter(([name]) => isOwnSource(name));
        for (const [name, text] of own) {
            const uri = vscode.Uri.from({
                scheme: SCHEME,
                path: `/${name.split("/").at(-1)}`,
                query: `${ref.class} ${ref.uri}`,
            });
            this.texts.set(uri.toString(), { text, ref });
            this.changed.fire(uri);
            await vscode.window.showTextDocument(uri, {
                viewColumn: vscode.ViewColumn.Beside,
                preview: own.length === 1,
            });
        }
    }

    /** The class whose proposal is being looked at, if any. */
    current(): ClassRef | undefined {
        const input = vscode.window.tabGroups.activeTabGroup.activeTab?.input;
        return input instanceof vscode.TabInputTextDiff ? this.texts.get(input.modified.toString())?.ref : undefined;
    }

    async apply(ref: ClassRef): Promise<void> {
        const answer = await telling(() =>
            this.server.execute<{ readonly edited: boolean }>("kernelAssistant.apply", ref),
        );
        if (answer === undefined) return;
        await this.close(ref);
        const text = `${ref.class}: applied${answer.edited ? "; save the file to use it" : ""}.`;
        // Without buttons: the lens above the class has Undo and the report for as long as they hold, a message does not.
        void vscode.window.showInformationMessage(text);
    }

    async discard(ref: ClassRef): Promise<void> {
        await telling(() => this.server.execute("kernelAssistant.discard", ref));
        await this.close(ref);
    }

    async undo(ref: ClassRef): Promise<void> {
        const answer = await telling(() => this.server.execute<object>("kernelAssistant.undo", ref));
        if (answer !== undefined)
            void vscode.window.showInformationMessage(`${ref.class}: the applied kernels were taken back.`);
    }

    dispose(): void {
        this.subscription.dispose();
        this.changed.dispose();
    }

    private async close(ref: ClassRef): Promise<void> {
        const proposed = proposalUri(ref).toString();
        this.texts.delete(proposed);
        const tabs = vscode.window.tabGroups.all.flatMap((group) => group.tabs);
        await vscode.window.tabGroups.close(
            tabs.filter(
                (tab) => tab.input instanceof vscode.TabInputTextDiff && tab.input.modified.toString() === proposed,
            ),
        );
    }
}

/** Ends in the file's own name, so that it is coloured like it. */
const proposalUri = (ref: ClassRef): vscode.Uri =>
    vscode.Uri.from({ scheme: SCHEME, path: vscode.Uri.parse(ref.uri).path, query: ref.class });
