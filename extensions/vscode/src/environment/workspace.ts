// The interpreter of a workspace folder: setting, Python extension, .venv, PATH.

import * as vscode from "vscode";
import { interpreters } from "./find.ts";

/** The part of ms-python's interface that is used here. */
interface PythonExtension {
    readonly environments: {
        getActiveEnvironmentPath(resource?: vscode.Uri): { readonly path: string };
        resolveEnvironment(environment: {
            readonly path: string;
        }): Promise<{ readonly executable: { readonly uri: vscode.Uri | undefined } } | undefined>;
        readonly onDidChangeActiveEnvironmentPath: vscode.Event<unknown>;
    };
}

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

    private async active(resource?: vscode.Uri): Promise<string | null> {
        const api = await pythonExtension();
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
}

/** Tells when the user chooses another interpreter; nothing to listen to without the Python extension. */
export async function onInterpreterChange(listener: () => void): Promise<vscode.Disposable | null> {
    return (await pythonExtension())?.environments.onDidChangeActiveEnvironmentPath(listener) ?? null;
}

async function pythonExtension(): Promise<PythonExtension | null> {
    const extension = vscode.extensions.getExtension<PythonExtension>("ms-python.python");
    if (!extension) return null;
    const api = extension.isActive ? extension.exports : await extension.activate();
    return api?.environments ? api : null;
}
