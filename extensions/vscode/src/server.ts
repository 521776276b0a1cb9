// One language server for the window: found, started, restarted, and what to say when it is not there.

import * as vscode from "vscode";
import {
    CloseAction,
    ErrorAction,
    ExecuteCommandRequest,
    LanguageClient,
    type LanguageClientOptions,
    State,
    type StaticFeature,
    type DynamicFeature,
} from "vscode-languageclient/node";
import { findServer, type Launch } from "./environment/find.ts";
import { pythonOf } from "./environment/install.ts";
import { Workspace } from "./environment/workspace.ts";
import { answered, crashed, missing, type Problem, UNTRUSTED } from "./problems.ts";
import { JOB, type JobView, STATUS, type Status, UNSUGGESTED, type Unsuggested, WATCH_STATUS } from "./protocol.ts";

/** The extension registers the commands itself, so that they are there while the server is not. */
class Client extends LanguageClient {
    override registerFeature(feature: StaticFeature | DynamicFeature<unknown>): void {
        if ("registrationType" in feature && feature.registrationType.method === ExecuteCommandRequest.method) return;
        super.registerFeature(feature);
    }
}

export type Phase = "stopped" | "starting" | "running" | "failed";

const MOST_RESTARTS = 3;
const RESTART_WINDOW_MS = 180_000;

export class Server implements vscode.Disposable {
    private readonly phaseChanged = new vscode.EventEmitter<Phase>();
    private readonly jobHeard = new vscode.EventEmitter<JobView>();
    private readonly statusHeard = new vscode.EventEmitter<Status>();
    private readonly unsuggestedHeard = new vscode.EventEmitter<Unsuggested>();
    readonly onUnsuggested = this.unsuggestedHeard.event;
    private readonly watchChanged = new vscode.EventEmitter<void>();
    readonly onWatch = this.watchChanged.event;
    readonly onPhase = this.phaseChanged.event;
    readonly onJob = this.jobHeard.event;
    readonly onStatus = this.statusHeard.event;
    readonly log: vscode.LogOutputChannel;
    phase: Phase = "stopped";
    problem: Problem | null = null;
    /** How the server was started last. */
    launch: Launch | null = null;
    private client: Client | null = null;
    private watching = false;
    private startedFor = "";
    private queue: Promise<void> = Promise.resolve();
    private readonly workspace: Workspace;
    private readonly storage: vscode.Uri;

    constructor(storage: vscode.Uri) {
        this.storage = storage;
        this.log = vscode.window.createOutputChannel("Kernel Assistant", { log: true });
        this.workspace = new Workspace(this.log);
    }

    /** Folder of the environment that the extension may make for the tool. */
    get ownEnvironment(): string {
        return vscode.Uri.joinPath(this.storage, "environment").fsPath;
    }

    start(): Promise<void> {
        return this.inOrder(() => this.startNow());
    }

    restart(): Promise<void> {
        return this.inOrder(async () => {
            await this.stopNow();
            await this.startNow();
        });
    }

    stop(): Promise<void> {
        return this.inOrder(() => this.stopNow());
    }

    /** Starts anew where another interpreter counts than the one that it was started for. */
    async interpreterChanged(): Promise<void> {
        if ((await this.workspace.interpreters()) !== this.startedFor) await this.restart();
    }

    /** Tells when the user may have chosen another interpreter. */
    onInterpreter(listener: () => void): Promise<vscode.Disposable | null> {
        return this.workspace.onChange(listener);
    }

    /** What the server answers. Throws with `problem` told where there is none to ask. */
    async execute<T>(command: string, argument: object, token?: vscode.CancellationToken): Promise<T> {
        if (this.client === null || this.phase !== "running")
            throw new Error(this.problem?.text ?? "The server is not running.");
        const params = { command, arguments: [argument] };
        return (await this.client.sendRequest(ExecuteCommandRequest.type, params, token)) as T;
    }

    /** Whether the device is being watched: what was heard of its load before is old. */
    get watched(): boolean {
        return this.watching;
    }

    async watchStatus(on: boolean): Promise<void> {
        if (this.watching === on) return;
        this.watching = on;
        this.watchChanged.fire();
        if (this.phase === "running") await this.sendWatch(on);
    }

    async dispose(): Promise<void> {
        await this.stop();
        this.log.dispose();
    }

    /** Starting and stopping never overlap. */
    private inOrder(step: () => Promise<void>): Promise<void> {
        this.queue = this.queue.then(step, step);
        return this.queue;
    }

    private async startNow(): Promise<void> {
        if (this.phase === "running") return;
        if (!vscode.workspace.isTrusted) return this.fail(UNTRUSTED);
        this.enter("starting");
        const settings = vscode.workspace.getConfiguration("kernelAssistant");
        this.startedFor = await this.workspace.interpreters();
        const interpreter = await this.workspace.interpreter();
        const found = await findServer({
            setting: settings.get("serverPath", ""),
            interpreter,
            own: pythonOf(this.ownEnvironment),
            path: process.env["PATH"] ?? "",
        });
        if (found.kind === "missing") return this.fail(missing(found.python, found.why));
        this.launch = found.launch;
        this.log.info(`server: ${found.launch.from}; modules run under ${interpreter ?? "no interpreter"}`);
        await this.connect(found.launch);
    }

    private async connect(launch: Launch): Promise<void> {
        const client = new Client(
            "kernelAssistant",
            "Kernel Assistant",
            { command: launch.command, args: [...launch.args] },
            this.options(),
        );
        client.onNotification(JOB, (view: JobView) => this.jobHeard.fire(view));
        client.onNotification(STATUS, (status: Status) => this.statusHeard.fire(status));
        client.onNotification(UNSUGGESTED, (why: Unsuggested) => this.unsuggestedHeard.fire(why));
        this.client = client;
        try {
            await client.start();
        } catch (error) {
            return this.fail(crashed(answered(error).text));
        }
        client.onDidChangeState(({ newState }) => {
            if (this.client !== client) return;
            if (newState === State.Stopped) this.fail(crashed("it ended"));
            if (newState === State.Running) void this.connected();
        });
        await this.connected();
    }

    /** Also after a crash: the new server does not know what the old one was asked to tell. */
    private async connected(): Promise<void> {
        this.enter("running");
        if (this.watching) await this.sendWatch(true);
    }

    private async sendWatch(on: boolean): Promise<void> {
        try {
            await this.client?.sendNotification(WATCH_STATUS, { on });
        } catch (error) {
            // The server is ending; the next one is told when it runs.
            this.log.debug(`watching the device: ${String(error)}`);
        }
    }

    private options(): LanguageClientOptions {
        const ends: number[] = [];
        return {
            documentSelector: [
                { scheme: "file", language: "python" },
                { scheme: "untitled", language: "python" },
                { scheme: "vscode-notebook-cell", language: "python" },
                { scheme: "file", pattern: "**/*.{cu,cuh}" },
            ],
            outputChannel: this.log,
            initializationOptions: { progress: "client", trusted: true },
            initializationFailedHandler: () => false,
            errorHandler: {
                error: () => ({ action: ErrorAction.Continue, handled: true }),
                closed: () => {
                    const now = Date.now();
                    ends.push(now);
                    const recent = ends.filter((then) => now - then < RESTART_WINDOW_MS).length;
                    return {
                        action: recent > MOST_RESTARTS ? CloseAction.DoNotRestart : CloseAction.Restart,
                        handled: true,
                    };
                },
            },
            middleware: {
                workspace: {
                    // The server need not look for the interpreter that VS Code already knows.
                    configuration: async (params, token, next) => {
                        const answers = await next(params, token);
                        if (!Array.isArray(answers)) return answers;
                        return await Promise.all(params.items.map((item, place) => this.filled(item, answers[place])));
                    },
                },
            },
        };
    }

    private async filled(item: { section?: string; scopeUri?: string }, answer: unknown): Promise<unknown> {
        if (item.section !== "kernelAssistant" || typeof answer !== "object" || answer === null) return answer;
        const scope = item.scopeUri ? vscode.Uri.parse(item.scopeUri) : undefined;
        return { ...answer, interpreter: (await this.workspace.interpreter(scope)) ?? "" };
    }

    private async stopNow(): Promise<void> {
        const client = this.client;
        this.client = null;
        this.enter("stopped");
        await client?.dispose(5000).catch((error: unknown) => this.log.warn(`stopping: ${String(error)}`));
    }

    private fail(problem: Problem): void {
        this.problem = problem;
        this.log.error(problem.text);
        this.enter("failed");
    }

    private enter(phase: Phase): void {
        this.phase = phase;
        if (phase === "running") this.problem = null;
        void vscode.commands.executeCommand("setContext", "kernelAssistant.running", phase === "running");
        this.phaseChanged.fire(phase);
    }
}
