// The program that most likely calls a module: proposed, never run unasked.

import * as vscode from "vscode";
import { quoted } from "./words.ts";

const SCRIPTS = /^((test_|train|main|run).*|.*_test)\.py$/;
/** Scripts that are looked into. */
const MOST = 50;

/** A command for the file itself where its name is a script's, else for a script or test of the workspace that says
 * `word` (a class, or the file's own module), else for the file. */
export async function likelyProgram(file: vscode.Uri, word: string): Promise<string> {
    const folder = vscode.workspace.getWorkspaceFolder(file);
    if (!folder || SCRIPTS.test(nameOf(file))) return commandFor(file);
    const pattern = new vscode.RelativePattern(folder, "**/{test_*,*_test,train*,main*,run*}.py");
    for (const script of await vscode.workspace.findFiles(pattern, undefined, MOST)) {
        const text = new TextDecoder().decode(await vscode.workspace.fs.readFile(script));
        if (text.includes(word)) return commandFor(script);
    }
    return commandFor(file);
}

export const nameOf = (file: vscode.Uri): string => file.path.split("/").at(-1) ?? "";

function commandFor(file: vscode.Uri): string {
    const isTest = /^(test_.*|.*_test)\.py$/.test(nameOf(file));
    const path = quoted(vscode.workspace.asRelativePath(file, false));
    return isTest ? `python -m pytest ${path}` : `python ${path}`;
}
