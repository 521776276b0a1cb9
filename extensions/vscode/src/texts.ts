// Texts that lie in no file: what is proposed, kernels, transcripts.

import * as vscode from "vscode";

export const SCHEME = "kernel-assistant";

export class Texts implements vscode.TextDocumentContentProvider, vscode.Disposable {
    private readonly changed = new vscode.EventEmitter<vscode.Uri>();
    readonly onDidChange = this.changed.event;
    private readonly texts = new Map<string, string>();
    private readonly subscription: vscode.Disposable;

    constructor() {
        this.subscription = vscode.workspace.registerTextDocumentContentProvider(SCHEME, this);
    }

    /** `text` at `uri` from now on, also where it is being shown. Answers `uri`. */
    put(uri: vscode.Uri, text: string): vscode.Uri {
        this.texts.set(uri.toString(), text);
        this.changed.fire(uri);
        return uri;
    }

    provideTextDocumentContent(uri: vscode.Uri): string {
        return this.texts.get(uri.toString()) ?? "";
    }

    dispose(): void {
        this.subscription.dispose();
        this.changed.dispose();
    }
}
