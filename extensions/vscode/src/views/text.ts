// What status item and views say. No VS Code in here.

import { bytes, milliseconds, percent } from "../format.ts";
import type { JobView, Status } from "../protocol.ts";

export interface StatusText {
    readonly text: string;
    readonly tooltip: string;
    readonly warning: boolean;
    readonly command: string;
}

export function statusText(
    phase: string,
    problem: string | null,
    status: Status | null,
    active: readonly JobView[],
): StatusText {
    if (phase === "failed") {
        return {
            text: "$(warning) Kernel Assistant",
            tooltip: problem ?? "The server is not running.",
            warning: true,
            command: "kernelAssistant.explain",
        };
    }
    if (phase !== "running") {
        return {
            text: "$(sync~spin) Kernel Assistant",
            tooltip: "Starting the server",
            warning: false,
            command: "kernelAssistant.showLog",
        };
    }
    const [job] = active;
    const device = status ? shortDevice(status.device) : "Kernel Assistant";
    const load =
        status?.utilisation === null || status?.utilisation === undefined ? "" : ` ${percent(status.utilisation)}`;
    const best = job?.best ? ` ${milliseconds(job.best.ms)}` : "";
    const working = job ? `$(sync~spin) ${job.class}${best} · ` : "$(rocket) ";
    const lines = [
        status ? deviceLine(status) : "Device not known yet",
        ...active.map((view) => `${view.class}: ${view.state}`),
    ];
    return {
        text: `${working}${device}${load}`,
        tooltip: lines.join("\n"),
        warning: false,
        command: "kernelAssistant.device.focus",
    };
}

/** A load that nobody measures any more is not shown: it would stand there as if it were now. */
export const seen = (status: Status | null, watched: boolean): Status | null =>
    status && !watched ? { ...status, utilisation: null, memory_used: null, memory_total: null } : status;

export function deviceLine(status: Status): string {
    const memory = status.memory_total ? `${bytes(status.memory_used)} of ${bytes(status.memory_total)}` : "";
    const load = status.utilisation === null ? "" : `${percent(status.utilisation)} busy`;
    return [status.device, load, memory].filter(Boolean).join(", ");
}

/** "NVIDIA H200" is "H200": room is scarce down there. */
const shortDevice = (device: string): string =>
    device.replace(/^(NVIDIA|AMD|Intel\(R\))\s+(GeForce\s+)?/, "").slice(0, 24) || device;
