// Kernels for a class of an installed library: which program of the user's imports them.

import * as vscode from "vscode";
import type { Applied, IntoRef } from "./protocol.ts";

const OTHER = "Another file…";

/** The class with the program that the user chose; undefined where they went away. */
export async function programFor(needed: Applied): Promise<IntoRef | undefined> {
    const choices = (needed.choices ?? []).map((choice) => ({ label: choice.title, ref: choice.arguments[0] }));
    const last = choices.at(-1)?.ref;
    if (!last) return undefined;
    const items = [...choices.slice(0, -1), { label: OTHER, ref: last }, ...choices.slice(-1)];
    const title = "Which program imports the kernels?";
    const chosen = await vscode.window.showQuickPick(items, {
        title,
        placeHolder: needed.message ?? "",
        ignoreFocusOut: true,
    });
    if (chosen?.label !== OTHER) return chosen?.ref;
    const filters = { Python: ["py"] };
    const found = await vscode.window.showOpenDialog({ title, filters, canSelectMany: false });
    return found?.[0] && { ...last, into: found[0].toString() };
}

/** What the user has to know after applying to a library's class. */
export function whatNow(applied: Applied): string {
    if (applied.importLine) return `; add this line to your program: ${applied.importLine}`;
    return applied.path ? `; ${vscode.workspace.asRelativePath(applied.path)} imports its kernels` : "";
}
