// What the server and the extension say to each other beyond the Language Server Protocol.

export interface ClassRef {
    readonly uri: string;
    readonly class: string;
}

export interface Best {
    readonly ms: number;
    readonly compile_ms: number | null;
    readonly speedup: number | null;
}

export type JobState = "queued" | "running" | "finished" | "failed" | "cancelled";

/** `kernelAssistant/job`: `kind` is optimize, verify, profile or check; `outcome` comes with the last event. */
export interface JobEvent extends ClassRef {
    readonly job: string;
    readonly state: JobState;
    readonly message: string;
    readonly turn: number | null;
    readonly best: Best | null;
    readonly percent: number | null;
    readonly kind?: string;
    readonly nextStep?: string;
    readonly outcome?: string | null;
}

/** `kernelAssistant/status`. Utilisation from 0 to 1 and bytes, null where the device does not tell. */
export interface Status {
    readonly device: string;
    readonly utilisation: number | null;
    readonly memory_used: number | null;
    readonly memory_total: number | null;
    readonly running: string | null;
}

/** What is proposed for a file. `kernels` are the sources by name. */
export interface Proposal {
    readonly before: string;
    readonly after: string;
    readonly title: string;
    readonly kernels?: Readonly<Record<string, string>>;
}

/** PTX and SASS, or assembly, of a job's kernels by name; one line for each text that could not be made. */
export interface Assembly {
    readonly files: Readonly<Record<string, string>>;
    readonly missing: readonly string[];
}

/** The answer of commands that begin a job, or say what they need, or what they found without one. */
export interface Begun {
    readonly job?: string | null;
    readonly needs?: "inputs" | "program";
    readonly message?: string;
    readonly nextStep?: string;
}

/** The answer to `scan`: seconds of one run. */
export interface Scan {
    readonly scan: string | null;
    readonly classes?: readonly ScannedClass[];
}

export interface ScannedClass {
    readonly name: string;
    readonly path: string;
    readonly line: number;
    readonly share_seconds: number;
    readonly saved_seconds: number;
    readonly problem: string;
}

export const JOB = "kernelAssistant/job";
export const STATUS = "kernelAssistant/status";
export const WATCH_STATUS = "kernelAssistant/watchStatus";

export const isLast = (state: JobState): boolean => state !== "queued" && state !== "running";
