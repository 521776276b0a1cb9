import assert from "node:assert/strict";
import { chmod, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { findServer, interpreters, onPath } from "../../../extensions/vscode/src/environment/find.ts";
import { install } from "../../../extensions/vscode/src/environment/install.ts";
import { fitness, probe, type Python } from "../../../extensions/vscode/src/environment/probe.ts";
import { atLeast } from "../../../extensions/vscode/src/environment/versions.ts";
import { answered, missing } from "../../../extensions/vscode/src/problems.ts";

let folder = "";
before(async () => {
    folder = await mkdtemp(join(tmpdir(), "kernel assistant ü "));
});
after(() => rm(folder, { recursive: true }));

/** A program that says what `probe` reads. */
async function fake(name: string, says: object | string): Promise<string> {
    const path = join(folder, name);
    await mkdir(join(path, ".."), { recursive: true });
    await writeFile(path, `#!/bin/sh\ncat <<'END'\n${typeof says === "string" ? says : JSON.stringify(says)}\nEND\n`);
    await chmod(path, 0o755);
    return path;
}

const complete = { version: "3.12.1", tool: "0.1.0", server: true, torch: null };

test("versions compare by number", () => {
    assert.ok(atLeast("0.10.0", "0.9"));
    assert.ok(atLeast("0.1.0rc1", "0.1.0"));
    assert.ok(!atLeast("3.9.18", "3.11"));
});

test("the real Python says what it is; what is none says nothing", async () => {
    const python = await probe((await onPath("python3", process.env["PATH"] ?? "")) ?? "");
    assert.match(python?.version ?? "", /^3\.\d+\.\d+$/);
    assert.equal(await probe(join(folder, "nothing")), null);
    assert.equal(await probe("/bin/true"), null);
});

test("setting, active environment, .venv and PATH count in this order, and only where they are there", async () => {
    const local = await fake("project/.venv/bin/python", complete);
    const system = await fake("bin/python3", complete);
    const places = { setting: "", active: null, folders: [join(folder, "project")], path: join(folder, "bin") };
    assert.deepEqual(await interpreters(places), [local, system]);
    const active = await fake("conda/bin/python", complete);
    assert.deepEqual(await interpreters({ ...places, active, setting: join(folder, "gone") }), [active, local, system]);
});

test("the workspace's interpreter is the server where it can be, else the own environment, else PATH", async () => {
    const bare = await fake("bare/python", { ...complete, tool: null });
    const full = await fake("full/python", complete);
    const own = await fake("own/bin/python", complete);
    await fake("path/kernel-assistant", "");
    const nowhere = { setting: "", interpreter: bare, own: join(folder, "no"), path: join(folder, "nothing") };
    const command = async (change: object): Promise<string | undefined> => {
        const found = await findServer({ ...nowhere, ...change });
        return found.kind === "server" ? found.launch.command : undefined;
    };
    assert.equal(await command({ interpreter: full, own }), full);
    assert.equal(await command({ own }), own);
    assert.equal(await command({ path: join(folder, "path") }), join(folder, "path/kernel-assistant"));
    assert.equal(
        await command({ setting: join(folder, "path/kernel-assistant") }),
        join(folder, "path/kernel-assistant"),
    );
    const none = await findServer(nowhere);
    assert.equal(none.kind === "missing" && none.why, "no tool");
});

test("each thing that can be missing has a sentence of its own and a next step", () => {
    const python: Python = { path: "/p", ...complete };
    const cases: [Partial<Python>, RegExp][] = [
        [{ tool: null }, /is not in \/p/],
        [{ tool: "0.0.9" }, /0\.0\.9 in \/p is older than/],
        [{ server: false }, /lacks pygls/],
        [{ version: "3.9.1" }, /Python 3\.9\.1 at \/p is older/],
    ];
    for (const [change, sentence] of cases) {
        const broken = { ...python, ...change };
        const problem = missing(broken, fitness(broken));
        assert.match(problem.text, sentence);
        assert.ok(problem.steps.includes("Install"));
    }
    assert.match(missing(null, "no interpreter").text, /No Python was found/);
});

test("an error of the server keeps its cause and gets buttons that fit", () => {
    const error = Object.assign(new Error("there is no GPU"), {
        data: { kind: "MissingError", nextStep: "kernel-assistant doctor" },
    });
    assert.equal(answered(error).text, "there is no GPU. Next: kernel-assistant doctor");
    assert.ok(answered(error).steps.includes("Check This Machine"));
    assert.ok(answered(new Error("no model is served")).steps.includes("Open Settings"));
});

test("an environment is made with venv and pip where there is no uv", async () => {
    const python = (await onPath("python3", process.env["PATH"] ?? "")) ?? "";
    const target = join(folder, "environment");
    const said: string[] = [];
    const what = {
        folder: target,
        path: join(python, ".."),
        say: (text: string) => void said.push(text),
        signal: new AbortController().signal,
    };
    // A folder that is no package: pip says so, and that is what the user reads.
    await assert.rejects(install({ ...what, requirement: join(folder, "no package") }), /no package/);
    assert.ok(said.some((text) => text.includes("-m venv")));
    assert.ok(await probe(join(target, "bin", "python")));
});
