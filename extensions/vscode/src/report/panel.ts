// The result page: one webview for each class, under a strict content policy.

import { randomBytes } from "node:crypto";
import * as vscode from "vscode";
import type { Assembly, ClassRef } from "../protocol.ts";
import type { Server } from "../server.ts";
import { telling } from "../tell.ts";
import { type Report, reportOf } from "./data.ts";
import { escaped } from "./escape.ts";
import { pageOf } from "./html.ts";

const COMMANDS = new Set(["diff", "apply", "verify", "confirm"]);

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
        const answer = await this.ask(ref);
        if (!answer) return;
        const report = reportOf(answer, null);
        const page = this.pages.get(keyOf(ref)) ?? this.open(ref, report);
        page.panel.reveal(undefined, false);
        await this.draw(page, ref, answer);
    }

    /** A page that is open and about this class is drawn again, where it is. */
    async refresh(ref: ClassRef): Promise<void> {
        const page = this.pages.get(keyOf(ref));
        const answer = page && (await this.ask(ref));
        if (page && answer) await this.draw(page, ref, answer);
    }

    dispose(): void {
        for (const page of this.pages.values()) page.panel.dispose();
    }

    private ask(ref: ClassRef): Promise<unknown> {
        return telling(() => this.server.execute<unknown>("kernelAssistant.show", ref));
    }

    /** At once, and again with the texts of compilers and disassemblers, which take a moment the first time. */
    private async draw(page: Page, ref: ClassRef, answer: unknown): Promise<void> {
        page.report = reportOf(answer, null);
        this.send(page);
        const { job } = page.report;
        if (page.report.sources.length === 0) return;
        const assembly = await this.assembly({ ...ref, job });
        // Another job of the class may have ended meanwhile.
        if (page.report.job !== job) return;
        page.report = reportOf(answer, assembly);
        this.send(page);
    }

    private async assembly(ref: ClassRef & { readonly job: string }): Promise<Assembly> {
        try {
            return await this.server.execute<Assembly>("kernelAssistant.assembly", ref);
        } catch (error) {
            return { files: {}, missing: [`No assembly: ${error instanceof Error ? error.message : String(error)}`] };
        }
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
