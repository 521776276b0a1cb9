// Which class a command from the palette means: the server's own lenses say where classes are.

import * as vscode from "vscode";
import type { ClassRef } from "./protocol.ts";

interface Place {
    readonly line: number;
    readonly ref: ClassRef;
}

/** The class at or above the cursor, else one that the user picks; undefined where there is none. */
export async function classAtCursor(): Promise<ClassRef | undefined> {
    const editor = vscode.window.activeTextEditor;
    if (!editor || editor.document.languageId !== "python") {
        void vscode.window.showInformationMessage("Open a Python file with an nn.Module class first.");
        return undefined;
    }
    const places = await classesOf(editor.document.uri);
    const chosen = nearest(places, editor.selection.active.line) ?? (await pick(places));
    if (places.length === 0) void vscode.window.showInformationMessage("There is no nn.Module class in this file.");
    return chosen;
}

export async function classesOf(uri: vscode.Uri): Promise<Place[]> {
    const lenses = await vscode.commands.executeCommand<vscode.CodeLens[]>("vscode.executeCodeLensProvider", uri, 1000);
    const places = lenses.flatMap((lens) => {
        const ref: unknown = lens.command?.arguments?.[0];
        return isRef(ref) ? [{ line: lens.range.start.line, ref }] : [];
    });
    return [...new Map(places.map((place) => [place.ref.class, place])).values()].sort((a, b) => a.line - b.line);
}

export function isRef(value: unknown): value is ClassRef {
    return (
        typeof value === "object" &&
        value !== null &&
        "uri" in value &&
        "class" in value &&
        typeof value.class === "string"
    );
}

function nearest(places: readonly Place[], line: number): ClassRef | undefined {
    return places.findLast((place) => place.line <= line)?.ref ?? (places.length === 1 ? places[0]?.ref : undefined);
}

async function pick(places: readonly Place[]): Promise<ClassRef | undefined> {
    if (places.length === 0) return undefined;
    const items = places.map((place) => ({
        label: place.ref.class,
        description: `line ${place.line + 1}`,
        ref: place.ref,
    }));
    return (await vscode.window.showQuickPick(items, { title: "Which module?" }))?.ref;
}
