// A program of the user's under the recorder; then its modules, the most worthwhile first.

import * as vscode from "vscode";
import { milliseconds } from "./format.ts";
import { likelyProgram, nameOf } from "./program.ts";
import type { Scan, ScannedClass } from "./protocol.ts";
import type { Server } from "./server.ts";
import { running } from "./tell.ts";
import { words } from "./words.ts";

export async function scan(server: Server, given?: string): Promise<void> {
    const uri = given
        ? vscode.Uri.parse(given)
        : (vscode.window.activeTextEditor?.document.uri ?? vscode.workspace.workspaceFolders?.[0]?.uri);
    if (!uri) return;
    const program = await vscode.window.showInputBox({
        title: "Which program uses the modules?",
        prompt: "It is run as it is, in the workspace folder, with your interpreter; calls are counted and timed.",
        value: uri.path.endsWith(".py")
            ? await likelyProgram(uri, nameOf(uri).replace(/\.py$/, ""))
            : "python -m pytest -q",
        ignoreFocusOut: true,
    });
    if (!program?.trim()) return;
    const request = { uri: uri.toString(), program: words(program) };
    const found = await running(`Scanning ${program}`, (token) =>
        server.execute<Scan>("kernelAssistant.scan", request, token),
    );
    if (found?.classes) await choose(found.classes);
}

async function choose(classes: readonly ScannedClass[]): Promise<void> {
    if (classes.length === 0)
        return void vscode.window.showInformationMessage("The program called no module that could be made faster.");
    const ranked = [...classes].sort((a, b) => b.saved_seconds - a.saved_seconds);
    const items = ranked.map((one) => ({
        label: one.name,
        description: `up to ${milliseconds(one.saved_seconds * 1000)} of ${milliseconds(one.share_seconds * 1000)} could be saved`,
        detail: one.problem || vscode.workspace.asRelativePath(one.path),
        one,
    }));
    const chosen = (
        await vscode.window.showQuickPick(items, {
            title: "Modules of the program, most to gain first",
            placeHolder: "Go to a class",
        })
    )?.one;
    if (!chosen?.path) return;
    const place = new vscode.Position(Math.max(0, chosen.line - 1), 0);
    await vscode.window.showTextDocument(vscode.Uri.file(chosen.path), { selection: new vscode.Range(place, place) });
}
