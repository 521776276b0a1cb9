// What a job tells and what is said with its model: a page that grows while the job runs, and a word to that model.

import * as vscode from "vscode";
import type { JobRef, Transcript } from "../protocol.ts";
import type { Server } from "../server.ts";
import { telling } from "../tell.ts";
import { SCHEME, type Texts } from "../texts.ts";
import type { Jobs } from "./tracker.ts";

/** Events come in bursts. */
const PAUSE_MS = 800;
/** For a page to be drawn after it has grown: what moves it then is not the reader. */
const DRAWN_MS = 250;

interface Page {
    readonly ref: JobRef;
    readonly uri: vscode.Uri;
    text: string;
    seen: number;
    /** Whether its end is what is looked at, so that it stays what is looked at. */
    follow: boolean;
    grown: number;
    timer: NodeJS.Timeout | undefined;
}

export class Transcripts implements vscode.Disposable {
    private readonly pages = new Map<string, Page>();
    private readonly subscriptions: vscode.Disposable[];
    private readonly server: Server;
    private readonly texts: Texts;
    private readonly jobs: Jobs;

    constructor(server: Server, jobs: Jobs, texts: Texts) {
        this.server = server;
        this.texts = texts;
        this.jobs = jobs;
        this.subscriptions = [
            jobs.onChange((view) => (this.growSoon(view.job), this.look())),
            vscode.window.onDidChangeActiveTextEditor(() => this.look()),
            vscode.window.onDidChangeTextEditorVisibleRanges((event) => this.scrolled(event)),
            vscode.workspace.onDidCloseTextDocument((document) => this.forget(document.uri)),
            vscode.workspace.onDidChangeTextDocument(
                ({ document }) => this.pageAt(document.uri)?.follow && toEnd(document),
            ),
        ];
    }

    async show(ref: JobRef): Promise<void> {
        const path = `/Transcript of ${ref.class}, job ${ref.job}.md`;
        const uri = vscode.Uri.from({ scheme: SCHEME, path });
        const page = this.pages.get(ref.job) ?? {
            ref,
            uri,
            text: "",
            seen: 0,
            follow: true,
            grown: 0,
            timer: undefined,
        };
        if (!(await this.grow(page))) return;
        this.pages.set(ref.job, page);
        const editor = await vscode.window.showTextDocument(uri, { preview: false });
        toEnd(editor.document);
        this.look();
    }

    /** Asks for words and passes them on; the model reads them at its next turn. */
    async say(ref: JobRef): Promise<void> {
        const words = await vscode.window.showInputBox({
            title: `To the model that works on ${ref.class} (job ${ref.job})`,
            prompt: "It reads this at its next turn.",
            ignoreFocusOut: true,
        });
        if (!words?.trim()) return;
        const told = await telling(() => this.server.execute<object>("kernelAssistant.say", { ...ref, words }));
        if (told)
            vscode.window.setStatusBarMessage(`Job ${ref.job} is told: the model reads it at its next turn`, 8000);
    }

    /** The job whose transcript is being looked at, if any. */
    current(): JobRef | undefined {
        const uri = vscode.window.activeTextEditor?.document.uri;
        return uri && this.pageAt(uri)?.ref;
    }

    dispose(): void {
        for (const page of this.pages.values()) clearTimeout(page.timer);
        for (const subscription of this.subscriptions) subscription.dispose();
    }

    /** Words are offered above the transcript of a job that runs. */
    private look(): void {
        const job = this.current()?.job;
        const runs = this.jobs.active.some((view) => view.job === job);
        void vscode.commands.executeCommand("setContext", "kernelAssistant.listening", runs);
    }

    private growSoon(job: string): void {
        const page = this.pages.get(job);
        if (page) page.timer ??= setTimeout(() => void this.growNow(page), PAUSE_MS);
    }

    private async growNow(page: Page): Promise<void> {
        page.timer = undefined;
        await this.grow(page);
    }

    private async grow(page: Page): Promise<boolean> {
        const { ref, seen } = page;
        const found = await telling(() =>
            this.server.execute<Transcript>("kernelAssistant.transcript", { ...ref, from: seen }),
        );
        if (!found) return false;
        if (page.seen !== seen) return true;
        page.text += found.text;
        page.seen = found.seen;
        page.grown = Date.now();
        this.texts.put(page.uri, page.text || "Nothing of this job is on record.\n");
        return true;
    }

    /** Whoever scrolls up reads there; back at the end, the page goes on with them. */
    private scrolled({ textEditor, visibleRanges }: vscode.TextEditorVisibleRangesChangeEvent): void {
        const page = this.pageAt(textEditor.document.uri);
        if (!page) return;
        const atEnd = (visibleRanges.at(-1)?.end.line ?? 0) >= textEditor.document.lineCount - 2;
        if (atEnd || Date.now() - page.grown > DRAWN_MS) page.follow = atEnd;
    }

    private pageAt(uri: vscode.Uri): Page | undefined {
        return [...this.pages.values()].find((page) => page.uri.toString() === uri.toString());
    }

    private forget(uri: vscode.Uri): void {
        const page = this.pageAt(uri);
        if (!page) return;
        clearTimeout(page.timer);
        this.pages.delete(page.ref.job);
    }
}

const editorsOf = (uri: vscode.Uri): vscode.TextEditor[] =>
    vscode.window.visibleTextEditors.filter((editor) => editor.document.uri.toString() === uri.toString());

function toEnd(document: vscode.TextDocument): void {
    const end = document.lineAt(document.lineCount - 1).range.end;
    for (const editor of editorsOf(document.uri)) editor.revealRange(new vscode.Range(end, end));
}
