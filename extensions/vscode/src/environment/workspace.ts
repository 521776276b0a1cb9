// The interpreter of a workspace folder: setting, Python extension, .venv, PATH.

import type { PythonExtension } from "@vscode/python-extension";
import * as vscode from "vscode";
import { interpreters } from "./find.ts";

export class Workspace {
    private readonly log: vscode.LogOutputChannel;

    constructor(log: vscode.LogOutputChannel) {
        this.log = log;
    }

    /** Path of the Python that runs modules of `resource`'s folder, null where there is none. */
    async interpreter(resource?: vscode.Uri): Promise<string | null> {
        const folder = resource ? vscode.workspace.getWorkspaceFolder(resource) : undefined;
        const folders = folder ? [folder] : (vscode.workspace.workspaceFolders ?? []);
        const found = await interpreters({
            setting: vscode.workspace.getConfiguration("kernelAssistant", resource).get("interpreter", ""),
            active: await this.active(resource),
            folders: folders.map((one) => one.uri.fsPath),
            path: process.env["PATH"] ?? "",
        });
        return found[0] ?? null;
    }

    /** Of the window and of each of its folders, as one text to compare. */
    async interpreters(): Promise<string> {
        const folders = vscode.workspace.workspaceFolders ?? [];
        const found = await Promise.all([undefined, ...folders].map((folder) => this.interpreter(folder?.uri)));
        return found.join("\n");
    }

    /** Tells when the user chooses another interpreter; nothing to listen to without the Python extension. */
    async onChange(listener: () => void): Promise<vscode.Disposable | null> {
        return (await this.extension())?.environments.onDidChangeActiveEnvironmentPath(listener) ?? null;
    }

    private async active(resource?: vscode.Uri): Promise<string | null> {
        const api = await this.extension();
        if (!api) return null;
        try {
            const environment = await api.environments.resolveEnvironment(
                api.environments.getActiveEnvironmentPath(resource),
            );
            return environment?.executable.uri?.fsPath ?? null;
        } catch (error) {
            this.log.warn(`the Python extension names no interpreter: ${String(error)}`);
            return null;
        }
    }

    /** What the Python extension exports; null where it is not there or does not start. */
    private async extension(): Promise<PythonExtension | null> {
        const extension = vscode.extensions.getExtension<PythonExtension>("ms-python.python");
        try {
            const api = await extension?.activate();
            return api?.environments ? api : null;
        } catch (error) {
            this.log.warn(`the Python extension does not start: ${String(error)}`);
            return null;
        }
    }
}
