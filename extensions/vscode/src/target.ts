// Which class a command from the palette means. The server says where classes are, also those that have no lens.

import * as vscode from "vscode";
import type { ClassRef, JobRef, ModuleClass } from "./protocol.ts";
import type { Server } from "./server.ts";
import { telling } from "./tell.ts";

interface Place {
    readonly line: number;
    readonly ref: ClassRef;
}

/** The class at or above the cursor, else one that the user picks; undefined where there is none. */
export async function classAtCursor(server: Server): Promise<ClassRef | undefined> {
    const editor = vscode.window.activeTextEditor;
    if (!editor || editor.document.languageId !== "python") {
        void vscode.window.showInformationMessage("Open a Python file with an nn.Module class first.");
        return undefined;
    }
    const places = await classesOf(editor.document.uri, server);
    if (places === undefined) return undefined;
    const chosen = nearest(places, editor.selection.active.line) ?? (await pick(places));
    if (places.length === 0) void vscode.window.showInformationMessage("There is no nn.Module class in this file.");
    return chosen;
}

async function classesOf(uri: vscode.Uri, server: Server): Promise<Place[] | undefined> {
    const text = uri.toString();
    const found = await telling(() => server.execute<ModuleClass[]>("kernelAssistant.classes", { uri: text }));
    return found?.map((one) => ({ line: one.line, ref: { uri: text, class: one.class } }));
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

export const isJob = (value: unknown): value is JobRef =>
    isRef(value) && "job" in value && typeof value.job === "string";

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
