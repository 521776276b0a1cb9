// The result page: one webview for each class, under a strict content policy.

import { randomBytes } from "node:crypto";
import * as vscode from "vscode";
import type { ClassRef } from "../protocol.ts";
import type { Server } from "../server.ts";
import { telling } from "../tell.ts";
import { type Report, reportOf, wanted } from "./data.ts";
import { escaped } from "./escape.ts";
import { pageOf } from "./html.ts";

/** Longer texts are cut: nobody reads them in a page, and it would be slow. */
const MOST_BYTES = 400_000;
const COMMANDS = new Set(["diff", "apply", "verify"]);

interface Message {
    readonly kind: "ready" | "command" | "candidate";
    readonly command?: string;
    readonly place?: number;
}

interface Page {
    readonly panel: vscode.WebviewPanel;
    report: Report;
}

export class ReportPages implements vscode.Disposable {
    private readonly pages = new Map<string, Page>();
    private readonly server: Server;
    private readonly extension: vscode.Uri;

    constructor(server: Server, extension: vscode.Uri) {
        this.server = server;
        this.extension = extension;
    }

    async show(ref: ClassRef & { readonly job?: string }): Promise<void> {
        const report = await this.ask(ref);
        if (!report) return;
        const page = this.pages.get(keyOf(ref)) ?? this.open(ref, report);
        page.report = report;
        page.panel.reveal(undefined, false);
        this.send(page);
    }

    /** A page that is open and about this class is drawn again, where it is. */
    async refresh(ref: ClassRef): Promise<void> {
        const page = this.pages.get(keyOf(ref));
        const report = page && (await this.ask(ref));
        if (!page || !report) return;
        page.report = report;
        this.send(page);
    }

    dispose(): void {
        for (const page of this.pages.values()) page.panel.dispose();
    }

    private async ask(ref: ClassRef): Promise<Report | undefined> {
        const answer = await telling(() => this.server.execute<unknown>("kernelAssistant.show", ref));
        return answer ? reportOf(answer, await texts(answer)) : undefined;
    }

    private open(ref: ClassRef, report: Report): Page {
        const media = vscode.Uri.joinPath(this.extension, "media");
        const dist = vscode.Uri.joinPath(this.extension, "dist");
        const panel = vscode.window.createWebviewPanel(
            "kernelAssistant.report",
            `Report: ${ref.class}`,
            vscode.ViewColumn.Active,
            {
                enableScripts: true,
                enableFindWidget: true,
                localResourceRoots: [media, dist],
            },
        );
        const page: Page = { panel, report };
        this.pages.set(keyOf(ref), page);
        panel.onDidDispose(() => this.pages.delete(keyOf(ref)));
        panel.webview.onDidReceiveMessage((message: Message) => this.take(page, ref, message));
        panel.webview.html = shell(
            panel.webview,
            ref.class,
            vscode.Uri.joinPath(media, "report.css"),
            vscode.Uri.joinPath(dist, "page.js"),
        );
        return page;
    }

    private async take(page: Page, ref: ClassRef, message: Message): Promise<void> {
        if (message.kind === "ready") this.send(page);
        if (message.kind === "command" && message.command && COMMANDS.has(message.command)) {
            await vscode.commands.executeCommand(`kernelAssistant.${message.command}`, ref);
        }
        if (message.kind === "candidate") await openCandidate(page.report, message.place ?? -1);
    }

    private send(page: Page): void {
        void page.panel.webview.postMessage({ kind: "show", html: pageOf(page.report) });
    }
}

const keyOf = (ref: ClassRef): string => `${ref.uri} ${ref.class}`;

async function openCandidate(report: Report, place: number): Promise<void> {
    const candidate = report.candidates[place];
    const [first] = Object.entries(candidate?.sources ?? {}).filter(([name]) => !name.endsWith(".h"));
    if (!first) return;
    const document = await vscode.workspace.openTextDocument({ content: first[1], language: "cpp" });
    await vscode.window.showTextDocument(document, { preview: true });
}

/** Texts of the artifacts that the page shows, by name. What has gone since is left out. */
async function texts(answer: unknown): Promise<Record<string, string>> {
    const artifacts = (answer as { result?: { artifacts?: Record<string, string> } | null }).result?.artifacts ?? {};
    const read = Object.entries(artifacts)
        .filter(([name]) => wanted(name))
        .map(async ([name, path]): Promise<[string, string] | null> => {
            try {
                const content = await vscode.workspace.fs.readFile(vscode.Uri.file(path));
                return [name, new TextDecoder().decode(content.subarray(0, MOST_BYTES))];
            } catch {
                return null;
            }
        });
    return Object.fromEntries((await Promise.all(read)).filter((entry) => entry !== null));
}

function shell(webview: vscode.Webview, title: string, style: vscode.Uri, script: vscode.Uri): string {
    const nonce = randomBytes(18).toString("base64");
    const policy = `default-src 'none'; style-src ${webview.cspSource}; script-src 'nonce-${nonce}'`;
    return `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<link rel="stylesheet" href="${webview.asWebviewUri(style)}">
<title>${escaped(title)}</title>
</head>
<body><main></main><script nonce="${nonce}" src="${webview.asWebviewUri(script)}"></script></body>
</html>`;
}
