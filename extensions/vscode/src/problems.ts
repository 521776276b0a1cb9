// What can be wrong, in one line, with the next step as buttons. No VS Code in here.

import type { Fitness, Python } from "./environment/probe.ts";
import { LEAST_PYTHON, LEAST_SERVER } from "./environment/versions.ts";

export type Step =
    | "Install"
    | "Choose Interpreter"
    | "Open Settings"
    | "Show Log"
    | "Restart"
    | "Check This Machine"
    | "Trust This Folder";

export interface Problem {
    readonly text: string;
    readonly steps: readonly Step[];
}

export const UNTRUSTED: Problem = {
    text: "Kernel Assistant runs nothing in a folder that is not trusted.",
    steps: ["Trust This Folder"],
};

export function missing(python: Python | null, why: Fitness | "no interpreter"): Problem {
    switch (why) {
        case "no interpreter":
        case "fits":
            return {
                text: "No Python was found for this workspace, so your modules cannot be run and the tool is not there.",
                steps: ["Choose Interpreter", "Install", "Open Settings"],
            };
        case "no tool":
            return {
                text: `kernel-assistant is not in ${python?.path}. It can live in an environment of its own; nothing is changed in yours.`,
                steps: ["Install", "Choose Interpreter"],
            };
        case "tool too old":
            return {
                text: `kernel-assistant ${python?.tool} in ${python?.path} is older than ${LEAST_SERVER}, which this extension needs.`,
                steps: ["Install", "Open Settings"],
            };
        case "incomplete":
            return {
                text: `kernel-assistant in ${python?.path} lacks pygls, which its language server needs (pip install --upgrade kernel-assistant).`,
                steps: ["Install", "Choose Interpreter"],
            };
        case "python too old":
            return {
                text: `Python ${python?.version} at ${python?.path} is older than ${LEAST_PYTHON}, which the tool needs; your modules may still run with it.`,
                steps: ["Install", "Choose Interpreter"],
            };
    }
}

export function crashed(detail: string): Problem {
    return {
        text: `The Kernel Assistant server does not start: ${detail}`,
        steps: ["Show Log", "Restart", "Check This Machine"],
    };
}

/** An error that the server answered with: its message is the cause, its data may carry the next step. */
export function answered(error: unknown): Problem {
    const message = error instanceof Error ? error.message : String(error);
    const data = (error as { data?: unknown } | null)?.data as { nextStep?: string } | null | undefined;
    const text = [message, data?.nextStep].filter(Boolean).join(". Next: ");
    return { text, steps: stepsFor(text) };
}

function stepsFor(text: string): Step[] {
    if (/\b(gpu|cuda|driver|nvcc|compiler|g\+\+)\b/i.test(text))
        return ["Check This Machine", "Open Settings", "Show Log"];
    if (/\b(model|endpoint|serve)\b/i.test(text)) return ["Open Settings", "Show Log"];
    if (/\b(torch|interpreter)\b/i.test(text)) return ["Choose Interpreter", "Show Log"];
    return ["Show Log"];
}
