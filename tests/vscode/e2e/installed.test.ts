// A class of an installed library in the real VS Code: from a scan to a program that imports its kernels, and back.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { CodeServer } from "./code_server.ts";
import { Editor } from "./editor.ts";

/** The machine may be busy with other things: waiting long costs nothing where it goes fast. */
const LONG = { timeout: 300_000 };
const CLASS = "Ripple";
const LIBRARY = "site-packages/vendor/layers.py";
/** A gain over eager that is clear on a busy machine, too: 48 operators in a kernel. */
const library = `import torch
from torch import nn


class ${CLASS}(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(12):
            x = torch.relu(x * 1.01 + 0.5) - 0.25
        return x
`;
const program = `import sys
import torch
from vendor.layers import ${CLASS}

if __name__ == "__main__":
    module = ${CLASS}().eval()
    with torch.no_grad():
        for _ in range(3):
            module(torch.randn(1024, 1024))
    if kernels := sys.modules.get("kernels_for_vendor"):
        print(kernels.counters()["${CLASS}"]["kernel"])
`;

let server: CodeServer;
let editor: Editor;

before(async () => {
    const files = { "site-packages/vendor/__init__.py": "", [LIBRARY]: library, "main.py": program };
    server = await CodeServer.start(files, { pythonPath: "site-packages", seconds: 300 });
    editor = new Editor(server.page);
});

after(async () => {
    await server?.shot("last-installed");
    await server?.stop();
});

test("a scan leads to the library's class, and a job to its kernels", async () => {
    await editor.open("main.py");
    await editor.command("Scan and Rank the Project");
    await editor.answer("python main.py");
    await editor.picker.locator(".monaco-list-row", { hasText: CLASS }).first().click();
    await editor.page.locator(".tab.active", { hasText: "layers.py" }).waitFor();
    await editor.lens("Optimize with Kernel Assistant").click();
    const review = editor.page.locator(".multiDiffEntry");
    // A gain over torch.compile opens the review, one over eager alone does not.
    await editor.lens("Review").or(review).first().waitFor(LONG);
    if (!(await review.first().isVisible())) await editor.lens("Review").click();
    // The library's file stays as it is: the kernels alone are new.
    await review.filter({ hasText: ".cpp" }).locator(".line-insert").first().waitFor();
});

test("Apply asks which program imports the kernels, and they run there", async () => {
    await editor.page.locator(".editor-actions").getByRole("button", { name: "Apply" }).click();
    await editor.picker.getByText("Into main.py").waitFor();
    await server.shot("into");
    await editor.picker.getByText("Into main.py").click();
    await editor.notification(`${CLASS}: applied; main.py imports its kernels`).waitFor();
    assert.match(await server.read("main.py"), /^import kernels_for_vendor/m);
    assert.equal(await server.python("import runpy; runpy.run_path('main.py', run_name='__main__')"), "3");
});

test("Undo above the library's class takes the program's line back", async () => {
    await editor.open("layers.py");
    await editor.lens("Undo").click();
    await editor.lens("Apply").waitFor();
    assert.equal(await server.read("main.py"), program);
    assert.equal(await server.read(LIBRARY), library);
    assert.ok(!(await server.names()).includes("kernels_for_vendor"));
});
