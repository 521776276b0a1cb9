// What the server and the extension say to each other beyond the Language Server Protocol.

export interface ClassRef {
    readonly uri: string;
    readonly class: string;
}

/** An answer to `kernelAssistant.classes`; `line` counts from 0. */
export interface ModuleClass {
    readonly class: string;
    readonly line: number;
    readonly hindrance: string;
}

export interface Best {
    readonly ms: number;
    readonly compile_ms: number | null;
    readonly speedup: number | null;
    /** Measured in full on fresh samples, and not only by the search. */
    readonly confirmed: boolean;
}

export type JobState = "queued" | "running" | "finished" | "failed" | "cancelled";

/** What the server offers of a job that has ended: recommended kernels, kernels that gain over what the program runs
 * where another baseline alone gives more, or nothing yet, or nothing. */
export type Offer = "recommended" | "possible" | "unclear" | "none";

/** Whether there is something to apply. */
export const applies = (offer: Offer): boolean => offer === "recommended" || offer === "possible";

/** An offer of the server as it came, which may be of an older one. */
export const offerOf = (value: unknown): Offer =>
    value === "recommended" || value === "possible" || value === "unclear" ? value : "none";

/** `kernelAssistant/job`: all that is known of a job now. The server computes it from the job's events, each time anew
 * and whole. `kind` is optimize, verify, profile, check or lines; `turn` is 0 before the first. */
export interface JobView extends ClassRef {
    readonly job: string;
    readonly kind: string;
    readonly state: JobState;
    readonly message: string;
    /** What to do about its failure. */
    readonly nextStep: string;
    readonly turn: number;
    readonly best: Best | null;
    readonly percent: number;
    /** Seconds until its budget is used up. */
    readonly left: number | null;
    /** Requests, tokens and money of its model, in words; "" without one, missing from an older server. */
    readonly spent?: string;
    /** Of a job that has ended. */
    readonly outcome: string | null;
    readonly offer: Offer;
    /** It kept a candidate that was not measured in full, or not clearly. */
    readonly unconfirmed: boolean;
}

/** `kernelAssistant/status`. Utilisation from 0 to 1 and bytes, null where the device does not tell. */
export interface Status {
    readonly device: string;
    readonly utilisation: number | null;
    readonly memory_used: number | null;
    readonly memory_total: number | null;
    readonly running: string | null;
}

export interface JobRef extends ClassRef {
    readonly job: string;
}

/** Markdown of what a job told behind the event that was asked for; `seen` is the number of the last one. */
export interface Transcript {
    readonly text: string;
    readonly seen: number;
    readonly ended: boolean;
}

/** What is proposed for a file. `kernels` are the sources by name. */
export interface Proposal {
    readonly before: string;
    readonly after: string;
    readonly title: string;
    readonly kernels?: Readonly<Record<string, string>>;
}

/** Sources of a job's kernels by name, each with its figures as a comment on top; `line` of the class, from 0. */
export interface Kernels {
    readonly job: string;
    readonly line: number;
    readonly kernels: Readonly<Record<string, string>>;
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

/** The answer to `apply`: where the library's file stays as it is, what it needs to know first. */
export interface Applied {
    readonly applied: string | null;
    readonly edited?: boolean;
    readonly importLine?: string;
    readonly path?: string;
    readonly needs?: "program";
    readonly message?: string;
    readonly choices?: readonly { readonly title: string; readonly arguments: readonly [IntoRef] }[];
}

/** A class whose kernels a program of the user's imports: its address, "" for none. */
export interface IntoRef extends ClassRef {
    readonly into: string;
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

/** `kernelAssistant/unsuggested`: why nothing is suggested in a CUDA file. */
export interface Unsuggested {
    readonly message: string;
    readonly nextStep: string;
}

export const UNSUGGESTED = "kernelAssistant/unsuggested";
export const JOB = "kernelAssistant/job";
export const STATUS = "kernelAssistant/status";
export const WATCH_STATUS = "kernelAssistant/watchStatus";

export const isLast = (state: JobState): boolean => state !== "queued" && state !== "running";
