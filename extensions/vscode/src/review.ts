// The user's file beside the proposed one, the kernels that come with it, and what is decided about them.

import * as vscode from "vscode";
import { programFor, whatNow } from "./into.ts";
import type { Applied, ClassRef, Kernels, Proposal } from "./protocol.ts";
import { isOwnSource } from "./report/data.ts";
import type { Server } from "./server.ts";
import { telling } from "./tell.ts";
import { SCHEME, type Texts } from "./texts.ts";

interface Shown {
    readonly ref: ClassRef;
    readonly title: string;
}

export class Review implements vscode.Disposable {
    private readonly decided = new vscode.EventEmitter<void>();
    /** Something was applied, discarded or taken back. */
    readonly onDecision = this.decided.event;
    private readonly shown = new Map<string, Shown>();
    private readonly subscriptions: vscode.Disposable[];
    private readonly server: Server;
    private readonly texts: Texts;

    constructor(server: Server, texts: Texts) {
        this.server = server;
        this.texts = texts;
        const look = (): void => this.look();
        this.subscriptions = [
            vscode.window.tabGroups.onDidChangeTabs(look),
            vscode.window.tabGroups.onDidChangeTabGroups(look),
        ];
    }

    /** The file's two lines and, as new files, the kernels that they bring. */
    async open(ref: ClassRef): Promise<void> {
        const proposal = await telling(() => this.server.execute<Proposal>("kernelAssistant.diff", ref));
        if (!proposal) return;
        const file = vscode.Uri.parse(ref.uri);
        const proposed = this.texts.put(
            vscode.Uri.from({ scheme: SCHEME, path: file.path, query: ref.class }),
            proposal.after,
        );
        const kernels = ownSources(proposal.kernels ?? {}).map(([name, text]) => {
            const uri = this.texts.put(kernelUri(ref, name), text);
            return [uri, undefined, uri];
        });
        this.shown.set(keyOf(ref), { ref, title: proposal.title });
        await vscode.commands.executeCommand("vscode.changes", proposal.title, [[file, file, proposed], ...kernels]);
        this.look();
    }

    /** Sources of the verified kernels, in a peek view at the class. */
    async kernels(ref: ClassRef): Promise<void> {
        const found = await telling(() => this.server.execute<Kernels>("kernelAssistant.kernels", ref));
        if (!found) return;
        const top = new vscode.Position(0, 0);
        const places = Object.entries(found.kernels).map(
            ([name, text]) => new vscode.Location(this.texts.put(kernelUri(ref, `figures/${name}`), text), top),
        );
        const file = vscode.Uri.parse(ref.uri);
        const at = new vscode.Position(found.line, 0);
        await vscode.window.showTextDocument(file, { selection: new vscode.Range(at, at) });
        await vscode.commands.executeCommand("editor.action.peekLocations", file, at, places, "peek");
    }

    /** The class whose proposal is being looked at, if any. */
    current(): ClassRef | undefined {
        const tab = vscode.window.tabGroups.activeTabGroup.activeTab;
        return tab && [...this.shown.values()].find((one) => isReview(tab, one))?.ref;
    }

    async apply(ref: ClassRef): Promise<void> {
        const first = await this.applied(ref);
        const into = first?.needs === "program" ? await programFor(first) : undefined;
        const answer = into ? await this.applied(into) : first;
        if (!answer?.applied) return;
        this.decided.fire();
        await this.close(ref);
        const next = into ? whatNow(answer) : answer.edited ? "; save the file to use it" : "";
        const text = `${ref.class}: applied${next}.`;
        // Without buttons: the lens above the class has Undo and the report for as long as they hold, a message does not.
        void vscode.window.showInformationMessage(text);
    }

    private applied(ref: ClassRef): Promise<Applied | undefined> {
        return telling(() => this.server.execute<Applied>("kernelAssistant.apply", ref));
    }

    async discard(ref: ClassRef): Promise<void> {
        await telling(() => this.server.execute("kernelAssistant.discard", ref));
        this.decided.fire();
        await this.close(ref);
    }

    async undo(ref: ClassRef): Promise<void> {
        const answer = await telling(() => this.server.execute<object>("kernelAssistant.undo", ref));
        if (answer === undefined) return;
        this.decided.fire();
        void vscode.window.showInformationMessage(`${ref.class}: the applied kernels were taken back.`);
    }

    dispose(): void {
        for (const subscription of this.subscriptions) subscription.dispose();
    }

    private async close(ref: ClassRef): Promise<void> {
        const one = this.shown.get(keyOf(ref));
        if (!one) return;
        const tabs = vscode.window.tabGroups.all.flatMap((group) => group.tabs);
        await vscode.window.tabGroups.close(tabs.filter((tab) => isReview(tab, one)));
        this.shown.delete(keyOf(ref));
        this.look();
    }

    /** Apply and Discard stand above a review, and above nothing else. */
    private look(): void {
        void vscode.commands.executeCommand("setContext", "kernelAssistant.reviewing", this.current() !== undefined);
    }
}

const keyOf = (ref: ClassRef): string => `${ref.uri} ${ref.class}`;

/** What a tab of several changes shows, an extension may not see; its label is the title and a count. */
const isReview = (tab: vscode.Tab, one: Shown): boolean => tab.label.startsWith(one.title);

const kernelUri = (ref: ClassRef, name: string): vscode.Uri =>
    vscode.Uri.from({ scheme: SCHEME, path: `/${ref.class}/${name}`, query: ref.uri });

const ownSources = (kernels: Readonly<Record<string, string>>): [string, string][] =>
    Object.entries(kernels).filter(([name]) => isOwnSource(name));
