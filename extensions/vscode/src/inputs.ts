// A class without inputs is not an error: three ways to give it some.

import * as vscode from "vscode";
import { likelyProgram } from "./program.ts";
import type { ClassRef, Scan } from "./protocol.ts";
import type { Server } from "./server.ts";
import { running, telling } from "./tell.ts";
import { words } from "./words.ts";

const PAGE = "inputs.md";

interface Draft {
    readonly text: string;
    readonly problem: string;
}

/** Asked once: the draft is run before it is offered, and taking it begins the job. */
export async function askForInputs(ref: ClassRef, server: Server, extension: vscode.Uri): Promise<void> {
    const draft = await running(`Drafting inputs of ${ref.class}`, (token) =>
        server.execute<Draft>("kernelAssistant.inputs", { ...ref, how: "draft", insert: false }, token),
    );
    const ways = [
        {
            label: "$(record) Record them from a program",
            detail: "Run a script or a test of yours; the calls of this class are kept",
            how: "record",
        },
        {
            label: "$(edit) Draft them",
            detail: draft ? offered(draft) : "A comment above the class, guessed from its code",
            how: "draft",
        },
        { label: "$(book) Read how", detail: "The three ways to say how a module is built and called", how: "read" },
    ] as const;
    const title = `How is ${ref.class} called?`;
    const chosen = await vscode.window.showQuickPick(ways, {
        title,
        placeHolder: "Its kernels are verified and measured on these inputs",
    });
    if (chosen?.how === "read") {
        await vscode.commands.executeCommand(
            "markdown.showPreview",
            vscode.Uri.joinPath(extension, "media", "walkthrough", PAGE),
        );
    }
    if (chosen?.how === "draft") await insert(ref, server, draft);
    if (chosen?.how === "record") await record(ref, server);
}

/** What is put above the class, and whether it runs. */
function offered(draft: Draft): string {
    const line = draft.text.trimEnd().split("\n").at(-1) ?? "";
    return draft.problem ? `It does not run yet: ${draft.problem}` : `It runs, and a job begins: ${line}`;
}

async function insert(ref: ClassRef, server: Server, draft: Draft | undefined): Promise<void> {
    const request = { ...ref, how: "draft", ...(draft && { text: draft.text, optimize: !draft.problem }) };
    const found = await telling(() =>
        server.execute<{ readonly inserted: boolean; readonly job: string | null; readonly problem: string }>(
            "kernelAssistant.inputs",
            request,
        ),
    );
    if (!found?.inserted || found.job) return;
    await vscode.window.showTextDocument(vscode.Uri.parse(ref.uri));
    const problem = draft?.problem ?? found.problem;
    await offer(
        ref,
        `Inputs of ${ref.class} were drafted above it. ${problem ? `They do not run yet: ${problem}` : ""}`,
    );
}

async function offer(ref: ClassRef, text: string): Promise<void> {
    const chosen = await vscode.window.showInformationMessage(text, "Optimize");
    if (chosen) await vscode.commands.executeCommand("kernelAssistant.optimize", ref);
}

async function record(ref: ClassRef, server: Server): Promise<void> {
    const program = await vscode.window.showInputBox({
        title: `Which program calls ${ref.class}?`,
        prompt: "It is run as it is, in the workspace folder, with your interpreter.",
        value: await likelyProgram(vscode.Uri.parse(ref.uri), ref.class),
        ignoreFocusOut: true,
    });
    if (!program?.trim()) return;
    const request = { ...ref, how: "record", program: words(program) };
    const scan = await running(`Recording inputs of ${ref.class}`, (token) =>
        server.execute<Scan>("kernelAssistant.inputs", request, token),
    );
    const kept = scan?.classes?.find((one) => one.name === ref.class);
    if (kept)
        await offer(ref, kept.problem ? `${ref.class}: ${kept.problem}` : `Inputs of ${ref.class} were recorded.`);
    else if (scan) void vscode.window.showWarningMessage(`The program does not call ${ref.class}.`);
}
