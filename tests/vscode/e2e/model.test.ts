// A model behind an endpoint that writes its calls, or only its kernel, into its text: the kernel is offered all the same.

import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { after, before, test } from "node:test";
import { checkout, CodeServer, python } from "./code_server.ts";
import { Editor } from "./editor.ts";

const LONG = { timeout: 150_000 };
/** One for each form of tests/agent/forms.py, in its order. */
const FILES = ["qwen.py", "fenced.py"];

let endpoint: ChildProcess;
let server: CodeServer;
let editor: Editor;

before(async () => {
    endpoint = spawn(python, ["-m", "tests.agent.forms"], { cwd: checkout, stdio: ["pipe", "pipe", "inherit"] });
    const [said] = (await once(endpoint.stdout!, "data")) as [Buffer];
    const [url, ...module] = said.toString().split("\n");
    const machine = {
        "kernelAssistant.serverPath": process.env["KERNEL_ASSISTANT_TEST_SERVER"] ?? python,
        "kernelAssistant.interpreter": python,
        "kernelAssistant.endpoint": url,
        "kernelAssistant.policy": "model",
    };
    server = await CodeServer.start(Object.fromEntries(FILES.map((name) => [name, module.join("\n")])), { machine });
    editor = new Editor(server.page);
});

after(async () => {
    await server?.shot("last-model");
    await server?.stop();
    endpoint?.stdin?.end();
});

for (const name of FILES)
    test(`${name}: the kernel of the model is verified, offered and applied`, async () => {
        await editor.open(name);
        await editor.lens("Optimize with Kernel Assistant").click();
        await editor.notification("Optimizing Chain").waitFor();
        await editor.notification(/\d requests?, \d+ tokens in/).waitFor(LONG);
        // The review opens where there is something to apply, however far ahead of torch.compile it is.
        await editor.page.locator(".tab.active", { hasText: `${name}: kernels of Chain` }).waitFor(LONG);
        await server.shot(`model-${name}`);
        await editor.page.locator(".editor-actions").getByRole("button", { name: "Apply" }).click();
        await editor.page.locator(".tab.active.dirty", { hasText: name }).waitFor(LONG);
        await editor.save();
        assert.match(await server.read(name), /_kernels\/load\.py/);
    });
