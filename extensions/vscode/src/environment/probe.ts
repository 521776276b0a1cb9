// What is in a Python: asked of the interpreter itself, since names and folders lie.

import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { atLeast, LEAST_PYTHON, LEAST_SERVER } from "./versions.ts";

export interface Python {
    readonly path: string;
    readonly version: string;
    /** Version of kernel-assistant in it, null without. */
    readonly tool: string | null;
    /** Whether what the server needs beside it is there too. */
    readonly server: boolean;
    readonly torch: string | null;
}

const QUESTION = `
import json, sys
from importlib import metadata, util
def version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
print(json.dumps({"version": "%d.%d.%d" % sys.version_info[:3], "tool": version("kernel-assistant"),
                  "server": util.find_spec("pygls") is not None, "torch": version("torch")}))
`;

/** What Python at `path` says of itself; null where it does not run. In isolated mode: nothing of the folder is loaded. */
export async function probe(path: string, timeoutMs = 15_000): Promise<Python | null> {
    try {
        const { stdout } = await promisify(execFile)(path, ["-I", "-c", QUESTION], { timeout: timeoutMs });
        return { path, ...(JSON.parse(stdout) as Omit<Python, "path">) };
    } catch {
        // Not there, not a Python, or hanging: one more place where nothing was found.
        return null;
    }
}

export type Fitness = "fits" | "no tool" | "tool too old" | "incomplete" | "python too old";

export function fitness(python: Python): Fitness {
    if (python.tool === null) return "no tool";
    if (!atLeast(python.tool, LEAST_SERVER)) return "tool too old";
    if (!atLeast(python.version, LEAST_PYTHON)) return "python too old";
    return python.server ? "fits" : "incomplete";
}
