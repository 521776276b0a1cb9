// Why nothing is suggested in a CUDA file: a message the first time, never again on this machine.

import * as vscode from "vscode";
import type { Unsuggested } from "./protocol.ts";

const KEY = "kernelAssistant.unsuggested";
const SETTINGS = "Open Settings";

export async function tellOnce(why: Unsuggested, memory: vscode.Memento): Promise<void> {
    const told = memory.get<string[]>(KEY, []);
    if (told.includes(why.message)) return;
    await memory.update(KEY, [...told, why.message]);
    const text = [why.message, why.nextStep].filter(Boolean).join(". Next: ");
    if ((await vscode.window.showInformationMessage(`Kernel Assistant: ${text}`, SETTINGS)) === SETTINGS)
        await vscode.commands.executeCommand("kernelAssistant.openSettings");
}
