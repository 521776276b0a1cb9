// Formats Python with the ruff that KERNEL_ASSISTANT_TEST_RUFF names.
const { execFileSync } = require("node:child_process");
const vscode = require("vscode");

exports.activate = (context) => {
    const provider = {
        provideDocumentFormattingEdits(document) {
            const text = document.getText();
            const formatted = execFileSync(process.env.KERNEL_ASSISTANT_TEST_RUFF, ["format", "--isolated", "-"], {
                input: text,
            });
            const whole = new vscode.Range(document.positionAt(0), document.positionAt(text.length));
            return [vscode.TextEdit.replace(whole, formatted.toString())];
        },
    };
    context.subscriptions.push(vscode.languages.registerDocumentFormattingEditProvider("python", provider));
};
