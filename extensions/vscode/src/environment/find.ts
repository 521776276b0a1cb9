// Which Python runs the user's modules, and which program is the server. No VS Code in here.

import { access, constants, stat } from "node:fs/promises";
import { delimiter, join } from "node:path";
import { type Fitness, fitness, probe, type Python } from "./probe.ts";

export interface Places {
    /** The setting, "" where it is not set. */
    readonly setting: string;
    /** What the Python extension has active, null without it. */
    readonly active: string | null;
    readonly folders: readonly string[];
    readonly path: string;
}

/** Interpreters in the order in which they count; only those that are there. */
export async function interpreters(places: Places): Promise<string[]> {
    const named = [places.setting, places.active ?? ""].filter(Boolean);
    const local = places.folders.flatMap((folder) =>
        [".venv", "venv"].map((name) => join(folder, name, "bin", "python")),
    );
    const system = [await onPath("python3", places.path), await onPath("python", places.path)];
    const all = [...named, ...local, ...system.filter((found) => found !== null)];
    const there = await Promise.all(all.map(isProgram));
    return [...new Set(all.filter((_, place) => there[place]))];
}

export async function onPath(name: string, path: string): Promise<string | null> {
    for (const folder of path.split(delimiter).filter(Boolean)) {
        const candidate = join(folder, name);
        if (await isProgram(candidate)) return candidate;
    }
    return null;
}

export async function isProgram(path: string): Promise<boolean> {
    try {
        await access(path, constants.X_OK);
        return (await stat(path)).isFile();
    } catch {
        return false;
    }
}

export interface Launch {
    readonly command: string;
    readonly args: readonly string[];
    /** For people: where the server came from. */
    readonly from: string;
}

export type Found =
    | { readonly kind: "server"; readonly launch: Launch }
    | { readonly kind: "missing"; readonly python: Python | null; readonly why: Fitness | "no interpreter" };

export interface ServerPlaces {
    /** The setting `serverPath`, "" where it is not set. */
    readonly setting: string;
    readonly interpreter: string | null;
    /** Python of the extension's own environment, there or not. */
    readonly own: string;
    readonly path: string;
}

/** The setting, the workspace's interpreter, the own environment, PATH; else why none of them will do. */
export async function findServer(places: ServerPlaces): Promise<Found> {
    if (places.setting) return await named(places.setting);
    const mine = places.interpreter ? await probe(places.interpreter) : null;
    const why = mine ? fitness(mine) : "no interpreter";
    if (mine && why === "fits") return { kind: "server", launch: module(mine.path, `${mine.path} (the workspace's)`) };
    if (await isProgram(places.own)) {
        const own = await probe(places.own);
        if (own && fitness(own) === "fits")
            return { kind: "server", launch: module(own.path, "the extension's own environment") };
    }
    const program = await onPath("kernel-assistant", places.path);
    if (program) return { kind: "server", launch: { command: program, args: ["lsp"], from: `${program} (on PATH)` } };
    return { kind: "missing", python: mine, why };
}

async function named(path: string): Promise<Found> {
    if (!(await isProgram(path))) return { kind: "missing", python: null, why: "no interpreter" };
    const python = await probe(path);
    if (python === null) return { kind: "server", launch: { command: path, args: ["lsp"], from: `${path} (setting)` } };
    const why = fitness(python);
    return why === "fits"
        ? { kind: "server", launch: module(path, `${path} (setting)`) }
        : { kind: "missing", python, why };
}

/** `-P` where Python has it (3.11): a folder that holds `kernel_assistant/` must not be what is started. */
const module = (python: string, from: string): Launch => ({
    command: python,
    args: ["-P", "-m", "kernel_assistant", "lsp"],
    from,
});
