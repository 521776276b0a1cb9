// Wires the parts together. Everything that is started here is disposed of with the window.

import * as vscode from "vscode";
import { registerCommands } from "./commands.ts";
import { Jobs } from "./jobs/tracker.ts";
import { Transcripts } from "./jobs/transcripts.ts";
import { isLast } from "./protocol.ts";
import { ReportPages } from "./report/panel.ts";
import { Review } from "./review.ts";
import { Server } from "./server.ts";
import { tell } from "./tell.ts";
import { Texts } from "./texts.ts";
import { tellOnce } from "./unsuggested.ts";
import { DeviceView } from "./views/device.ts";
import { JobsView } from "./views/jobs.ts";
import { statusItem } from "./views/statusItem.ts";

/** Settings that need another server; the server asks for all others itself. */
const RESTARTING = ["kernelAssistant.interpreter", "kernelAssistant.serverPath"];

let running: Server | undefined;

export async function activate(context: vscode.ExtensionContext): Promise<void> {
    const server = new Server(context.globalStorageUri);
    running = server;
    const jobs = new Jobs(server);
    const texts = new Texts();
    const review = new Review(server, texts);
    const transcripts = new Transcripts(server, jobs, texts);
    const history = new JobsView(server, jobs);
    const reports = new ReportPages(server, context.extensionUri);
    context.subscriptions.push(
        jobs,
        texts,
        review,
        reports,
        new DeviceView(server, jobs),
        history,
        transcripts,
        statusItem(server, jobs),
        ...registerCommands({ server, jobs, review, reports, transcripts, extension: context.extensionUri }),
        jobs.onChange((view) => isLast(view.state) && void reports.refresh({ uri: view.uri, class: view.class })),
        server.onUnsuggested((why) => void tellOnce(why, context.globalState)),
        review.onDecision(() => history.refresh()),
        vscode.workspace.onDidGrantWorkspaceTrust(() => void begin(server)),
        vscode.workspace.onDidChangeConfiguration((event) => {
            if (RESTARTING.some((name) => event.affectsConfiguration(name))) void server.restart();
        }),
    );
    if (!vscode.workspace.isTrusted) return server.start();
    await begin(server);
    const listening = await server.onInterpreter(() => void server.interpreterChanged());
    if (listening) context.subscriptions.push(listening);
}

/** VS Code waits for this when the window closes, which it does not for subscriptions. */
export async function deactivate(): Promise<void> {
    await running?.dispose();
}

async function begin(server: Server): Promise<void> {
    await server.start();
    if (server.phase === "failed" && server.problem) void tell(server.problem);
}
