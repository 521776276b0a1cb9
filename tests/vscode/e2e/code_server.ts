// The real VS Code with the packed extension in it, on a folder of its own, and a page of Chromium that shows it.

import { type ChildProcess, execFile, spawn } from "node:child_process";
import { cp, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import type { Browser, Page } from "playwright-core";

const run = promisify(execFile);
const here = dirname(fileURLToPath(import.meta.url));
export const checkout = join(here, "../../..");

/** Set by `make test-editors`. */
function setting(name: string): string {
    const value = process.env[name];
    if (!value) throw new Error(`${name} is not set: run make test-editors`);
    return value;
}

const tools = setting("KERNEL_ASSISTANT_TEST_TOOLS");
export const python = setting("KERNEL_ASSISTANT_TEST_PYTHON");
/** Runs the server; the same Python where the tool and torch live together. */
const serverPython = process.env["KERNEL_ASSISTANT_TEST_SERVER"] ?? python;
const load = createRequire(join(tools, "package.json"));
const { chromium } = load("playwright-core") as typeof import("playwright-core");

export interface Options {
    /** Settings of the machine, for those that name server and interpreter. */
    readonly machine?: Readonly<Record<string, unknown>>;
    readonly path?: string;
    /** Folders of the workspace where Python finds what is installed. */
    readonly pythonPath?: string;
    /** Budget of a job that has to come to its end on a busy machine. */
    readonly seconds?: number;
    /** Ask whether the folder is trusted, which the other tests leave out. */
    readonly trust?: boolean;
}

export class CodeServer {
    readonly folder: string;
    readonly workspace: string;
    page!: Page;
    private readonly home: string;
    private readonly shots: string;
    private process!: ChildProcess;
    private browser!: Browser;
    private port = 0;
    private log = "";
    private readonly options: Options;

    private constructor(folder: string, shots: string, options: Options) {
        this.options = options;
        this.folder = folder;
        this.workspace = join(folder, "my models ü");
        this.home = join(folder, "home");
        this.shots = shots;
    }

    /** With `files` (name → text) in the workspace. `options` for a machine where something is missing. */
    static async start(files: Readonly<Record<string, string>>, options: Options = {}): Promise<CodeServer> {
        const shots = join(checkout, "build/editors");
        const server = new CodeServer(await mkdtemp(join(tmpdir(), "ka-e2e-")), shots, options);
        await mkdir(shots, { recursive: true });
        await mkdir(server.workspace, { recursive: true });
        for (const [name, text] of Object.entries(files)) {
            await mkdir(dirname(join(server.workspace, name)), { recursive: true });
            await writeFile(join(server.workspace, name), text);
        }
        await server.install();
        await server.listen();
        await server.open();
        return server;
    }

    get environment(): NodeJS.ProcessEnv {
        return {
            ...process.env,
            // As a user has it: the model, where there is one, which tests steer.
            KERNEL_ASSISTANT_POLICY: undefined,
            PATH: this.options.path ?? `${dirname(python)}:${process.env["PATH"]}`,
            ...(this.options.pythonPath ? { PYTHONPATH: join(this.workspace, this.options.pythonPath) } : {}),
            XDG_CONFIG_HOME: join(this.home, "config"),
            XDG_DATA_HOME: join(this.home, "data"),
            KERNEL_ASSISTANT_HOME: join(this.home, "assistant"),
            KERNEL_ASSISTANT_TEST_FORMATTED: join(this.home, "formatted"),
            KERNEL_ASSISTANT_TEST_RUFF: process.env["KERNEL_ASSISTANT_TEST_RUFF"] ?? join(dirname(python), "ruff"),
        };
    }

    async read(name: string): Promise<string> {
        return await readFile(join(this.workspace, name), "utf8");
    }

    /** Files that were formatted when they were saved, one a line. */
    async formatted(): Promise<string> {
        return await readFile(join(this.home, "formatted"), "utf8");
    }

    async names(): Promise<string[]> {
        return await readdir(this.workspace);
    }

    /** What Python prints for a script, with the workspace as its folder. */
    async python(script: string): Promise<string> {
        const { stdout } = await run(python, ["-c", script], { cwd: this.workspace, env: this.environment });
        return stdout.trim();
    }

    /** Waits; fails after half a minute. */
    async until(holds: () => Promise<boolean>): Promise<void> {
        for (let tries = 0; tries < 300; tries += 1) {
            if (await holds()) return;
            await this.page.waitForTimeout(100);
        }
        throw new Error("it did not come to that in 30 seconds");
    }

    async shot(name: string): Promise<void> {
        await this.page.screenshot({ path: join(this.shots, `${name}.png`) });
    }

    /** The window as it is opened anew: what a user's reload does. */
    async reload(): Promise<void> {
        await this.page.reload();
        await this.ready();
    }

    /** The language server dies, as it does where memory runs out. */
    async killLanguageServer(): Promise<void> {
        for (const pid of (await readdir("/proc")).filter((name) => /^\d+$/.test(name))) {
            const read = (name: string): Promise<string> => readFile(join("/proc", pid, name), "utf8").catch(() => "");
            const isServer = (await read("cmdline")).includes("\0kernel_assistant\0lsp");
            if (isServer && (await read("environ")).includes(this.home)) process.kill(Number(pid), "SIGKILL");
        }
    }

    async stop(): Promise<void> {
        await this.browser?.close();
        if (this.process?.pid) {
            const ended = new Promise((resolve) => this.process.once("exit", resolve));
            // Its own group: the extension host and the language server go with it.
            process.kill(-this.process.pid, "SIGTERM");
            await ended;
        }
        await run(serverPython, ["-m", "kernel_assistant", "host", "stop"], { env: this.environment }).catch(
            () => undefined,
        );
        await writeFile(join(this.shots, "code-server.log"), this.log);
        await rm(this.folder, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
    }

    private get arguments(): string[] {
        return [
            join(tools, "node_modules/code-server/out/node/entry.js"),
            ...["--user-data-dir", join(this.home, "user"), "--extensions-dir", join(this.home, "extensions")],
        ];
    }

    private async install(): Promise<void> {
        // Before anything is installed: what is put there later is not looked at.
        const formatter = "extensions/kernel-assistant-tests.ruff-formatter-0.0.1";
        await cp(join(here, "formatter"), join(this.home, formatter), { recursive: true });
        const node = join(tools, "bin/node");
        const vsix = join(checkout, "extensions/vscode/kernel-assistant.vsix");
        await run(node, [...this.arguments, "--install-extension", vsix], { env: this.environment });
        const machine = this.options.machine ?? {
            "kernelAssistant.serverPath": serverPython,
            "kernelAssistant.interpreter": python,
        };
        const user = {
            "editor.formatOnSave": true,
            "files.autoSave": "off",
            // Quick Open finds compiled files, whose names begin like those of the sources.
            "files.exclude": { "**/__pycache__": true },
            "kernelAssistant.target": "cpu",
            "kernelAssistant.budget.seconds": this.options.seconds ?? 90,
            "workbench.startupEditor": "none",
            "workbench.colorTheme": "Default Dark Modern",
            "workbench.secondarySideBar.defaultVisibility": "hidden",
            "chat.disableAIFeatures": true,
            "security.workspace.trust.enabled": this.options.trust === true,
            "editor.minimap.enabled": false,
        };
        for (const [place, settings] of [
            ["Machine", machine],
            ["User", user],
        ] as const) {
            await mkdir(join(this.home, "user", place), { recursive: true });
            await writeFile(join(this.home, "user", place, "settings.json"), JSON.stringify(settings));
        }
    }

    private async listen(): Promise<void> {
        this.port = await freePort();
        const flags = [
            "--auth",
            "none",
            "--bind-addr",
            `127.0.0.1:${this.port}`,
            "--disable-telemetry",
            "--disable-update-check",
        ];
        const trust = this.options.trust ? [] : ["--disable-workspace-trust"];
        const more = [...trust, "--disable-getting-started-override", "--reconnection-grace-time", "2", this.workspace];
        this.process = spawn(join(tools, "bin/node"), [...this.arguments, ...flags, ...more], {
            env: this.environment,
            detached: true,
        });
        const heard = (chunk: Buffer): void => void (this.log += chunk.toString());
        this.process.stdout?.on("data", heard);
        this.process.stderr?.on("data", heard);
        for (let tries = 0; tries < 300; tries += 1) {
            const healthy = await fetch(`http://127.0.0.1:${this.port}/healthz`).then(
                (answer) => answer.ok,
                () => false,
            );
            if (healthy) return;
            await new Promise((resolve) => setTimeout(resolve, 100));
        }
        throw new Error(`code-server does not answer:\n${this.log}`);
    }

    private async open(): Promise<void> {
        const quiet = [
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ];
        this.browser = await chromium.launch({
            executablePath: "/usr/bin/chromium",
            args: ["--no-sandbox", "--disable-gpu", ...quiet],
        });
        const context = await this.browser.newContext({ viewport: { width: 1360, height: 860 } });
        this.page = await context.newPage();
        this.page.setDefaultTimeout(60_000);
        await this.page.goto(`http://127.0.0.1:${this.port}/?folder=${encodeURIComponent(this.workspace)}`);
        await this.ready();
    }

    private async ready(): Promise<void> {
        await this.page.locator(".monaco-workbench .statusbar").waitFor();
    }
}

async function freePort(): Promise<number> {
    return await new Promise((resolve, reject) => {
        const server = createServer().on("error", reject);
        server.listen(0, "127.0.0.1", () => {
            const address = server.address();
            server.close(() =>
                typeof address === "object" && address ? resolve(address.port) : reject(new Error("no port")),
            );
        });
    });
}
