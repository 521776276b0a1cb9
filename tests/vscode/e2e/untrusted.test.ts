// A folder that nobody vouches for: nothing is started, and one sentence says so.

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { after, before, test } from "node:test";
import { CodeServer } from "./code_server.ts";
import { Editor } from "./editor.ts";
import { files, MODULE } from "./files.ts";

let server: CodeServer;
let editor: Editor;

before(async () => {
    // What a hostile folder would like: its own interpreter, and no sandbox.
    const settings = JSON.stringify({ "kernelAssistant.serverPath": "/bin/false", "kernelAssistant.sandbox": "none" });
    server = await CodeServer.start({ ...files, ".vscode/settings.json": settings }, { trust: true });
    editor = new Editor(server.page);
});

after(async () => {
    await server?.shot("last-untrusted");
    await server?.stop();
});

test("an untrusted folder starts nothing until it is trusted, and its settings never choose what is started", async () => {
    await editor.open(MODULE);
    const item = editor.page.locator(".statusbar-item", { hasText: "Kernel Assistant" });
    await item.click();
    const told = editor.notification("runs nothing in a folder that is not trusted");
    await told.getByRole("button", { name: "Trust This Folder" }).waitFor();
    await server.shot("untrusted");
    assert.ok(!existsSync(server.environment["KERNEL_ASSISTANT_HOME"] ?? ""), "something was started");
    assert.equal(await editor.page.locator(".codelens-decoration a").count(), 0);
    await editor.press(told, "Trust This Folder");
    await editor.page.getByRole("button", { name: "Trust", exact: true }).first().click();
    await editor.open(MODULE);
    await editor.lens("Optimize with Kernel Assistant").waitFor();
});
