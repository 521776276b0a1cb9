// The whole way in the real VS Code: lens, job, cancel, reload, diff, apply, numbers, format on save, undo.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { CodeServer } from "./code_server.ts";
import { Editor } from "./editor.ts";
import { BARE, CLASS, COMPARE, files, KERNEL, MODULE, original, PROGRAM, RECORDED } from "./files.ts";

/** The machine may be busy with other things: waiting long costs nothing where it goes fast. */
const LONG = { timeout: 150_000 };

let server: CodeServer;
let editor: Editor;

before(async () => {
    server = await CodeServer.start({ ...files, "original.py": original });
    editor = new Editor(server.page);
});

after(async () => {
    await server?.shot("last");
    await server?.stop();
});

test("a lens stands above the class, and Cancel ends what it started", async () => {
    await editor.open(MODULE);
    await editor.lens("Optimize with Kernel Assistant").waitFor();
    await server.shot("lens");
    await editor.lens("Optimize with Kernel Assistant").click();
    const job = editor.notification(`Optimizing ${CLASS}`);
    await editor.notification(/best [\d.]+ ms/).waitFor(LONG);
    await server.shot("progress");
    await editor.press(job, "Cancel");
    await editor.notification(`${CLASS}: cancelled`).waitFor();
    await job.waitFor({ state: "hidden" });
});

test("a job outlives the window: after a reload its notification is back, then its diff", async () => {
    await editor.page.keyboard.press("Escape");
    await editor.lens("Optimize").click();
    await editor.notification(`Optimizing ${CLASS}`).waitFor();
    await server.reload();
    await editor.notification(`Optimizing ${CLASS}`).waitFor();
    await server.shot("reloaded");
    await editor.notification(/improved: .*vs torch.compile, verified/).waitFor(LONG);
    await editor.page.locator(".diff-editor, .monaco-diff-editor").first().waitFor();
    await editor.page.locator(".tab.active", { hasText: `kernels of ${CLASS}` }).waitFor();
    await editor.page.locator(".monaco-diff-editor .line-insert").first().waitFor();
    // Below the lines of the file, the kernels that come with them.
    await editor.page.locator(".multiDiffEntry", { hasText: ".cpp" }).locator(".line-insert").first().waitFor();
    await server.shot("diff");
});

test("the report shows figures, plots, candidates and source", async () => {
    await editor.press(editor.notification("improved"), "Show Report");
    const page = await editor.webview("measurably faster");
    assert.ok((await page.locator("svg.plot").count()) >= 1);
    assert.ok((await page.locator("tr[data-candidate]").count()) >= 1);
    assert.match((await page.locator("pre").first().textContent()) ?? "", /int64_t|float/);
    await page.locator('[data-group="assembly"][data-body]').first().waitFor({ state: "attached" });
    assert.match((await page.locator('[data-group="assembly"][data-body]').first().textContent()) ?? "", /\bret\b/);
    await server.shot("report");
    await editor.close(`Report: ${CLASS}`);
});

test("what is applied runs through the kernels and gives the same numbers; format on save leaves it working", async () => {
    await editor.page.locator(".editor-actions").getByRole("button", { name: "Apply" }).click();
    await editor.notification(`${CLASS}: applied`).waitFor(LONG);
    await editor.lens("Undo").waitFor();
    await server.shot("applied");
    await editor.page.locator(".tab.active.dirty", { hasText: MODULE }).waitFor();
    await editor.save();
    assert.match(await server.formatted(), new RegExp(MODULE));
    assert.match(await server.read(MODULE), /_kernels\/load\.py/);
    const found = JSON.parse(await server.python(COMPARE)) as {
        difference: number;
        largest: number;
        counters: Record<string, { kernel: number }>;
    };
    assert.ok(found.difference <= 1e-4 * found.largest, JSON.stringify(found));
    assert.equal(found.counters[CLASS]?.kernel, 1, JSON.stringify(found));
});

test("Undo takes the edit back", async () => {
    await editor.lens("Undo").click();
    await editor.lens("Apply").waitFor();
    await editor.save();
    assert.equal(await server.read(MODULE), original);
    // The package goes once the server has seen the file saved without it.
    await server.until(async () => !(await server.names()).includes("masked_cumsum_kernels"));
});

test("the lens opens the kernels at the class, with their figures and what they replace", async () => {
    await editor.lens("Kernels").click();
    const peek = editor.page.locator(".peekview-widget");
    await peek.locator(".view-line", { hasText: /verified,\s[\d.]+×\svs\storch\.compile/ }).waitFor();
    await peek.locator(".view-line", { hasText: /replaces:.*cumsum/ }).waitFor();
    await editor.page.locator(".tab.active", { hasText: MODULE }).waitFor();
    await server.shot("kernels");
    // Below the figures; only lines in view are there to be found.
    await peek.locator(".view-lines").first().hover();
    await editor.page.mouse.wheel(0, 300);
    await peek.locator(".view-line", { hasText: "#include" }).first().waitFor();
    await editor.page.keyboard.press("Escape");
    await peek.waitFor({ state: "detached" });
});

test("ghost text offers the verified kernels above the class, and Tab puts them in", async () => {
    await editor.goTo(original.split("\n").findIndex((line) => line.startsWith("class ")));
    await editor.suggest();
    await server.shot("ghost");
    await editor.page.keyboard.press("Tab");
    await editor.notification(`${CLASS}: applied`).waitFor();
    await editor.lens("Undo").waitFor();
    await editor.save();
    assert.match(await server.read(MODULE), /_kernels\/load\.py/);
    assert.ok((await server.names()).includes("masked_cumsum_kernels"));
    const found = JSON.parse(await server.python(COMPARE)) as { counters: Record<string, { kernel: number }> };
    assert.equal(found.counters[CLASS]?.kernel, 1, JSON.stringify(found));
    await editor.lens("Undo").click();
    await editor.lens("Apply").waitFor();
    await editor.save();
});

test("after profiling, each line of forward shows its time", async () => {
    await editor.goTo(original.split("\n").findIndex((line) => line.includes("def forward")) + 1);
    await editor.command("Profile Line by Line");
    await editor.notification(`Profiling ${CLASS}`).waitFor();
    await editor.page
        .locator(".view-line", { hasText: /cumsum.*\d\s(ms|µs)/ })
        .first()
        .waitFor(LONG);
    await server.shot("profile");
});

test("a class without inputs gets a draft, and is optimized with it", async () => {
    await editor.open(BARE);
    await editor.lens("Optimize with Kernel Assistant").click();
    await editor.picker.getByText("It runs, and a job begins").waitFor(LONG);
    await server.shot("inputs");
    await editor.picker.getByText("Draft them").click();
    const job = editor.notification("Optimizing Bare");
    await job.waitFor();
    await editor.page.getByRole("tab", { name: "Kernel Assistant" }).click();
    await editor.page.locator(".pane-body", { hasText: "Utilisation" }).waitFor();
    const row = editor.page.locator(".pane-body .monaco-list-row", { hasText: /job\s\d+.*turn/ }).first();
    await row.hover();
    await row.getByRole("button", { name: "Show Transcript" }).click();
    await editor.page.locator(".tab.active", { hasText: "Transcript of Bare" }).waitFor();
    // It grows while the job runs, and its end stays in view.
    await editor.page
        .locator(".view-line", { hasText: /turn\s\d+:\s\w/ })
        .first()
        .waitFor(LONG);
    await server.shot("transcript");
    await editor.page.locator(".editor-actions").getByRole("button", { name: "Say to the Model" }).click();
    await editor.say("use one pass");
    await editor.page.locator(".statusbar-item", { hasText: "is told: the model reads it" }).waitFor();
    await editor.close("Transcript of Bare");
    await editor.notification(/Optimizing Bare.*best [\d.]+ (ms|µs)/).waitFor(LONG);
    await server.shot("views");
    await editor.press(job, "Cancel");
    await editor.notification("Bare: cancelled").waitFor();
});

test("a language server that dies is followed by one that tells of device and jobs again", async () => {
    const device = editor.page.locator(".pane-body .monaco-list-row", { hasText: "Utilisation" });
    await device.waitFor();
    await server.killLanguageServer();
    await device.waitFor({ state: "detached" });
    await device.waitFor();
    await editor.page.locator(".statusbar-item", { hasText: /%/ }).waitFor();
    await editor.page.locator(".pane-body .monaco-list-row", { hasText: MODULE }).waitFor();
});

test("a job whose kernels the file takes is applied from the list of jobs", async () => {
    await editor.open(MODULE);
    const rows = editor.page.locator(".pane-body .monaco-list-row", { hasText: /job\s\d+.*vs\storch\.compile/ });
    await rows.first().hover();
    await rows.first().getByRole("button", { name: "Apply" }).click();
    await editor.lens("Undo").waitFor();
    await server.shot("jobs");
    // Once they are in the file, no job of the class offers them.
    await rows.first().hover();
    await rows.first().getByRole("button", { name: "Apply" }).waitFor({ state: "detached" });
    await editor.save();
});

test("a file that is renamed takes its kernels along", async () => {
    await editor.page.getByRole("tab", { name: "Explorer" }).first().click();
    await editor.rename(MODULE, "renamed.py");
    // VS Code asks before an extension changes other files with it.
    await editor.page.locator(".monaco-dialog-box").getByRole("button", { name: "OK" }).click();
    await server.until(async () => (await server.names()).includes("renamed_kernels"));
    assert.ok(!(await server.names()).includes("masked_cumsum_kernels"));
    await editor.follow("Undo", "Optimize");
    await editor.save();
    await server.until(async () => !(await server.names()).includes("renamed_kernels"));
    await editor.page.getByRole("tab", { name: "Kernel Assistant" }).click();
});

test("in a CUDA file without a model that could continue it, the reason is said once", async () => {
    const said = editor.notification("nothing is suggested in CUDA files");
    await editor.open(KERNEL);
    await editor.goTo(2);
    await editor.page.keyboard.type("float y");
    await said.waitFor();
    await server.shot("cuda");
    await editor.page.keyboard.press("Escape");
    await said.waitFor({ state: "detached" });
    await editor.suggestNothing();
    assert.equal(await said.count(), 0);
    await editor.revert();
});

test("a class without inputs has them recorded from a program, and is led to a first result", async () => {
    await editor.open(RECORDED);
    await editor.lens("Optimize with Kernel Assistant").click();
    await editor.picker.getByText("Record them from a program").click();
    // The program that names the class is proposed.
    await editor.answer(`python ${PROGRAM}`);
    await editor.notification("Recording inputs of Recorded").waitFor();
    const recorded = editor.notification("Inputs of Recorded were recorded");
    await recorded.waitFor();
    await server.shot("recorded");
    await editor.press(recorded, "Optimize");
    await editor.notification(/Optimizing Recorded.*best [\d.]+ (ms|µs)/).waitFor(LONG);
    await editor.press(editor.notification("Optimizing Recorded"), "Cancel");
    await editor.notification(/Recorded: cancelled; the best so far is kept/).waitFor();
});

test("a scanned program's modules are ranked, and the chosen one is opened", async () => {
    await editor.command("Scan and Rank the Project");
    await editor.answer(`python ${PROGRAM}`);
    const row = editor.picker.locator(".monaco-list-row", { hasText: "Recorded" });
    await row.first().waitFor();
    await server.shot("scan");
    await row.first().click();
    await editor.page.locator(".tab.active", { hasText: RECORDED }).waitFor();
    await editor.page.locator(".statusbar-item", { hasText: "Ln 5, Col 1" }).waitFor();
});
