// Formats Python with the ruff that KERNEL_ASSISTANT_TEST_RUFF names, and notes what it has formatted.
const { execFileSync } = require("node:child_process");
const { appendFileSync } = require("node:fs");
const vscode = require("vscode");

exports.activate = (context) => {
    const provider = {
        provideDocumentFormattingEdits(document) {
            const text = document.getText();
            const formatted = execFileSync(process.env.KERNEL_ASSISTANT_TEST_RUFF, ["format", "--isolated", "-"], {
                input: text,
            });
            appendFileSync(process.env.KERNEL_ASSISTANT_TEST_FORMATTED, `${document.fileName}\n`);
            const whole = new vscode.Range(document.positionAt(0), document.positionAt(text.length));
            return [vscode.TextEdit.replace(whole, formatted.toString())];
        },
    };
    context.subscriptions.push(vscode.languages.registerDocumentFormattingEditProvider("python", provider));
};
