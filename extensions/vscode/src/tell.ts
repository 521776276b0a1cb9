// Problems as messages whose buttons are the next steps.

import * as vscode from "vscode";
import { answered, type Problem, type Step } from "./problems.ts";

const COMMAND_OF: Record<Step, string> = {
    Install: "kernelAssistant.install",
    "Choose Interpreter": "python.setInterpreter",
    "Open Settings": "kernelAssistant.openSettings",
    "Show Log": "kernelAssistant.showLog",
    Restart: "kernelAssistant.restart",
    "Check This Machine": "kernelAssistant.doctor",
    "Trust This Folder": "workbench.trust.manage",
};

export async function tell(problem: Problem): Promise<void> {
    const known = new Set(await vscode.commands.getCommands(true));
    const steps = problem.steps.map((step) => (known.has(COMMAND_OF[step]) ? step : ("Open Settings" as const)));
    const chosen = await vscode.window.showErrorMessage(problem.text, ...new Set(steps));
    if (chosen) await vscode.commands.executeCommand(COMMAND_OF[chosen]);
}

/** Run `step`; what goes wrong is told, not thrown. */
export async function telling<T>(step: () => Promise<T>): Promise<T | undefined> {
    try {
        return await step();
    } catch (error) {
        void tell(answered(error));
        return undefined;
    }
}

/** Run a program of the user's under a notification. Its Cancel ends the program; what was seen until then counts. */
export async function running<T>(
    title: string,
    step: (token: vscode.CancellationToken) => Promise<T>,
): Promise<T | undefined> {
    const options = { location: vscode.ProgressLocation.Notification, title, cancellable: true };
    return await vscode.window.withProgress(options, (_, token) => telling(() => step(token)));
}
