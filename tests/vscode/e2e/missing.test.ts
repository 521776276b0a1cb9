// A machine without the tool: one sentence, one button, and then it works.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { checkout, CodeServer, python } from "./code_server.ts";
import { Editor } from "./editor.ts";
import { files, MODULE } from "./files.ts";

const folder = mkdtempSync(join(tmpdir(), "ka-bare-"));
const bare = join(folder, "bin/python3");
let server: CodeServer;
let editor: Editor;

before(async () => {
    execFileSync(python, ["-m", "venv", folder]);
    const machine = { "kernelAssistant.interpreter": bare, "kernelAssistant.package": checkout };
    server = await CodeServer.start(files, { machine, path: `${join(folder, "bin")}:/usr/bin:/bin` });
    editor = new Editor(server.page);
});

after(async () => {
    await server?.shot("last-missing");
    await server?.stop();
    rmSync(folder, { recursive: true, force: true });
});

test("a Python without the tool is named, and Install puts the tool into an environment of its own", async () => {
    await editor.open(MODULE);
    const problem = editor.notification(`kernel-assistant is not in ${bare}`);
    await problem.waitFor();
    await server.shot("missing");
    await editor.press(problem, "Install");
    await editor.notification("Installing").waitFor();
    await editor.lens("Optimize with Kernel Assistant").waitFor({ timeout: 200_000 });
    // Nothing came into the workspace's own.
    assert.throws(() => execFileSync(bare, ["-I", "-c", "import kernel_assistant"], { stdio: "ignore" }));
});

test("an interpreter without torch is refused with the next step, not with a traceback", async () => {
    await editor.lens("Optimize with Kernel Assistant").click();
    const refused = editor.notification(/torch.*Next: /s);
    await refused.waitFor();
    await server.shot("no-torch");
    await refused.getByRole("button", { name: "Show Log" }).waitFor();
});
