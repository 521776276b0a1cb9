// Every command: from a lens or a tree with its class as argument, from the palette with the class at the cursor.

import * as vscode from "vscode";
import { onPath } from "./environment/find.ts";
import { install } from "./environment/install.ts";
import { askForInputs } from "./inputs.ts";
import type { Transcripts } from "./jobs/transcripts.ts";
import type { Jobs } from "./jobs/tracker.ts";
import { answered } from "./problems.ts";
import type { Begun, ClassRef, JobRef, JobView } from "./protocol.ts";
import type { ReportPages } from "./report/panel.ts";
import type { Review } from "./review.ts";
import { scan } from "./scan.ts";
import type { Server } from "./server.ts";
import { classAtCursor, isJob, isRef } from "./target.ts";
import { tell, telling } from "./tell.ts";
import { quoted } from "./words.ts";

export interface Parts {
    readonly server: Server;
    readonly jobs: Jobs;
    readonly review: Review;
    readonly reports: ReportPages;
    readonly transcripts: Transcripts;
    readonly extension: vscode.Uri;
}

export function registerCommands(parts: Parts): vscode.Disposable[] {
    const { server, review, reports, transcripts } = parts;
    const about = (name: string, run: (ref: ClassRef) => Promise<unknown>): vscode.Disposable =>
        vscode.commands.registerCommand(`kernelAssistant.${name}`, async (given?: unknown) => {
            if (!(await ready(server))) return;
            const ref = isRef(given) ? given : (review.current() ?? (await classAtCursor(server)));
            if (ref) await run(ref);
        });
    const plain = (name: string, run: () => unknown): vscode.Disposable =>
        vscode.commands.registerCommand(`kernelAssistant.${name}`, run);
    const aboutJob = (name: string, title: string, run: (ref: JobRef) => Promise<unknown>): vscode.Disposable =>
        vscode.commands.registerCommand(`kernelAssistant.${name}`, async (given?: unknown) => {
            if (!(await ready(server))) return;
            const ref = isJob(given) ? given : (transcripts.current() ?? (await running(parts, given, title)));
            if (ref) await run(ref);
        });
    const asked = (name: string): vscode.Disposable => about(name, (ref) => ask(name, ref, server));
    return [
        about("optimize", (ref) => begin("optimize", ref, parts)),
        about("profile", (ref) => begin("profile", ref, parts)),
        about("inputs", (ref) => askForInputs(ref, server, parts.extension)),
        about("show", (ref) => reports.show(ref)),
        about("diff", (ref) => review.open(ref)),
        about("kernels", (ref) => review.kernels(ref)),
        about("apply", (ref) => review.apply(ref)),
        about("discard", (ref) => review.discard(ref)),
        about("undo", (ref) => review.undo(ref)),
        asked("verify"),
        asked("confirm"),
        asked("ignore"),
        aboutJob("transcript", "Whose transcript?", (ref) => transcripts.show(ref)),
        aboutJob("say", "Which job's model?", (ref) => transcripts.say(ref)),
        vscode.commands.registerCommand("kernelAssistant.cancel", (given?: unknown) => cancel(parts, given)),
        vscode.commands.registerCommand(
            "kernelAssistant.scan",
            async (given?: { readonly uri?: string }) => (await ready(server)) && scan(server, given?.uri),
        ),
        plain("jobs", () => vscode.commands.executeCommand("kernelAssistant.jobs.focus")),
        plain("restart", () => server.restart()),
        plain("showLog", () => server.log.show()),
        plain("install", () => installTool(server)),
        plain("doctor", () => doctor(server)),
        plain("openSettings", () => vscode.commands.executeCommand("workbench.action.openSettings", "kernelAssistant")),
        plain("explain", () => (server.problem ? tell(server.problem) : server.log.show())),
    ];
}

async function ready(server: Server): Promise<boolean> {
    if (server.phase !== "running") await server.start();
    if (server.phase === "running") return true;
    if (server.problem) void tell(server.problem);
    return false;
}

/** What runs the module, and so has to know how it is called. */
async function begin(name: string, ref: ClassRef, parts: Parts): Promise<void> {
    const begun = await telling(() => parts.server.execute<Begun>(`kernelAssistant.${name}`, ref));
    if (begun?.needs === "inputs") await askForInputs(ref, parts.server, parts.extension);
}

/** A command whose job, if it begins one, is shown by itself. */
async function ask(name: string, ref: ClassRef, server: Server): Promise<void> {
    const begun = await telling(() => server.execute<Begun | null>(`kernelAssistant.${name}`, ref));
    const said = [begun?.message, begun?.nextStep].filter(Boolean).join(". Next: ");
    if (said && !begun?.job) void vscode.window.showInformationMessage(`${ref.class}: ${said}`);
}

async function cancel(parts: Parts, given: unknown): Promise<void> {
    const chosen = await running(parts, given, "Cancel which job?");
    if (chosen) await parts.jobs.cancel(chosen);
}

/** The job that runs: of the class given, else the only one, else one that the user picks. */
async function running({ jobs }: Parts, given: unknown, title: string): Promise<JobView | undefined> {
    const named = jobs.active.find((view) =>
        isJob(given) ? view.job === given.job : isRef(given) && view.class === given.class && view.uri === given.uri,
    );
    const items = jobs.active.map((view) => ({ label: view.class, description: view.message, view }));
    if (items.length === 0) void vscode.window.showInformationMessage("No job is running.");
    return named ?? (items.length > 1 ? (await vscode.window.showQuickPick(items, { title }))?.view : items[0]?.view);
}

async function installTool(server: Server): Promise<void> {
    if (!vscode.workspace.isTrusted) return;
    const requirement = vscode.workspace.getConfiguration("kernelAssistant").get("package", "kernel-assistant");
    const options = {
        location: vscode.ProgressLocation.Notification,
        cancellable: true,
        title: `Installing ${requirement}`,
    };
    await vscode.window.withProgress(options, async (progress, token) => {
        const stop = new AbortController();
        token.onCancellationRequested(() => stop.abort());
        const say = (line: string): void => {
            server.log.info(line);
            progress.report({ message: line.slice(0, 80) });
        };
        try {
            await install({
                folder: server.ownEnvironment,
                requirement,
                path: process.env["PATH"] ?? "",
                say,
                signal: stop.signal,
            });
            await server.restart();
        } catch (error) {
            if (!stop.signal.aborted)
                void tell({
                    text: `${requirement} could not be installed: ${answered(error).text}`,
                    steps: ["Show Log", "Open Settings"],
                });
        }
    });
}

/** In a terminal: it is a page of text, and people copy from it. */
async function doctor(server: Server): Promise<void> {
    if (!vscode.workspace.isTrusted) return;
    const launch = server.launch ?? {
        command: (await onPath("kernel-assistant", process.env["PATH"] ?? "")) ?? "kernel-assistant",
        args: ["lsp"],
    };
    const args = [...launch.args.slice(0, -1), "doctor"];
    const terminal = vscode.window.createTerminal({
        name: "Kernel Assistant",
        iconPath: new vscode.ThemeIcon("rocket"),
    });
    terminal.show();
    terminal.sendText([launch.command, ...args].map(quoted).join(" "));
}
