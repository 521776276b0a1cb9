// The tool in an environment of its own: uv where there is one, else venv and pip. No VS Code in here.

import { spawn } from "node:child_process";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { onPath } from "./find.ts";
import { fitness, probe } from "./probe.ts";
import { atLeast, LEAST_PYTHON } from "./versions.ts";

export interface Installation {
    /** The environment's folder; replaced when it is not a working one. */
    readonly folder: string;
    readonly requirement: string;
    readonly path: string;
    readonly say: (line: string) => void;
    readonly signal: AbortSignal;
}

export const pythonOf = (folder: string): string => join(folder, "bin", "python");

/** Python of the finished environment. Throws an Error whose message names the step, the reason and what to do. */
export async function install(what: Installation): Promise<string> {
    const uv = await onPath("uv", what.path);
    const python = pythonOf(what.folder);
    if ((await probe(python)) === null) {
        await rm(what.folder, { recursive: true, force: true });
        if (uv) await run(what, uv, ["venv", "--quiet", "--python", `>=${LEAST_PYTHON}`, what.folder]);
        else await run(what, await basePython(what.path), ["-m", "venv", what.folder]);
    }
    if (uv) await run(what, uv, ["pip", "install", "--upgrade", "--python", python, what.requirement]);
    else
        await run(what, python, ["-m", "pip", "install", "--disable-pip-version-check", "--upgrade", what.requirement]);
    const found = await probe(python);
    const state = found ? fitness(found) : "no tool";
    if (state !== "fits") throw new Error(`${what.requirement} was installed, but ${python} has ${state}: see the log`);
    return python;
}

async function basePython(path: string): Promise<string> {
    for (const name of ["python3", "python3.14", "python3.13", "python3.12", "python3.11"]) {
        const found = await onPath(name, path);
        const python = found ? await probe(found) : null;
        if (python && atLeast(python.version, LEAST_PYTHON)) return python.path;
    }
    throw new Error(`no Python of ${LEAST_PYTHON} or newer on PATH: install one, or uv, and try again`);
}

async function run(what: Installation, command: string, args: readonly string[]): Promise<void> {
    what.say(`$ ${[command, ...args].join(" ")}`);
    await new Promise<void>((resolve, reject) => {
        let last = "";
        const child = spawn(command, args, { signal: what.signal, stdio: ["ignore", "pipe", "pipe"] });
        const take = (chunk: Buffer): void => {
            for (const line of chunk.toString().split(/\r?\n/).filter(Boolean)) {
                last = line;
                what.say(line);
            }
        };
        child.stdout.on("data", take);
        child.stderr.on("data", take);
        child.on("error", reject);
        child.on("close", (code) =>
            code === 0 ? resolve() : reject(new Error(last || `${command} ended with ${code}`)),
        );
    });
}
