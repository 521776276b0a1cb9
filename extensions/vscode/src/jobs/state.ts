// What to say of a job. No VS Code in here.

import { milliseconds, times } from "../format.ts";
import { type Best, type JobView, applies } from "../protocol.ts";

/** One line for a notification: the best so far first, since it is what one waits for; nothing twice. */
export function line(view: JobView): string {
    const best = view.best ? bestText(view.best) : "";
    const message = best && view.message.startsWith("best so far") ? "" : shortPaths(view.message);
    const turn = view.turn && !message.startsWith("turn ") ? `turn ${view.turn}` : "";
    return [best, turn, message, view.spent].filter(Boolean).join(" · ");
}

/** `…/bin/python`: a notification has no room for where everything lies. */
const shortPaths = (text: string): string => text.replace(/(?:\/[^\s/:]+){2,}(\/[^\s/:]+\/[^\s/:]+)/g, "…$1");

const DOING: Record<string, string> = { optimize: "Optimizing", profile: "Timing", lines: "Profiling" };

export const title = (view: JobView): string => `${DOING[view.kind] ?? "Checking"} ${view.class}`;

export function bestText(best: Best): string {
    const against = best.compile_ms === null ? "eager" : "torch.compile";
    const state = best.confirmed ? "" : ", not confirmed";
    return best.speedup === null
        ? `best ${milliseconds(best.ms)}${state}`
        : `best ${milliseconds(best.ms)}, ${times(best.speedup)} vs ${against}${state}`;
}

export type Choice =
    | "Apply"
    | "Review Changes"
    | "Verify in Full"
    | "Show Report"
    | "Discard"
    | "Show Log"
    | "Try Again"
    | "Give It Inputs";

export interface Ending {
    readonly kind: "information" | "warning" | "error";
    readonly text: string;
    readonly choices: readonly Choice[];
    /** Whether the diff is opened. */
    readonly review: boolean;
}

/** What to say when a job has ended. Claims no more than the server does. `here`: the user is in its file, so that the
 * diff opens by itself; elsewhere it would take away what they are looking at. */
export function ending(view: JobView, here: boolean): Ending {
    const name = view.class;
    if (view.state === "failed") {
        const inputs = /\binputs?\b/i.test(view.message);
        return {
            kind: "error",
            text: [`${name}: ${view.message || "the job failed"}`, view.nextStep].filter(Boolean).join(". Next: "),
            choices: [
                ...(inputs ? (["Give It Inputs"] as const) : view.kind === "optimize" ? (["Try Again"] as const) : []),
                "Show Log",
            ],
            review: false,
        };
    }
    if (view.state === "cancelled") {
        const kept = view.best ? `; the best so far is kept (${bestText(view.best)})` : "";
        return {
            kind: "information",
            text: `${name}: cancelled${kept}`,
            choices: [
                ...(view.unconfirmed ? (["Verify in Full"] as const) : []),
                ...(view.best ? (["Show Report"] as const) : []),
            ],
            review: false,
        };
    }
    if (view.kind !== "optimize") {
        return { kind: "information", text: `${name}: ${view.message || "finished"}`, choices: [], review: false };
    }
    const gains = applies(view.offer);
    const open = view.unconfirmed ? (["Verify in Full"] as const) : [];
    return {
        kind: "information",
        text: `${name}: ${view.message || (gains ? "measurably faster" : "no measurable gain")}`,
        choices: gains ? [here ? "Apply" : "Review Changes", "Show Report", "Discard"] : [...open, "Show Report"],
        review: gains && here,
    };
}
