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

export interface Proposal {
  readonly before: string;
  readonly after: string;
  readonly title: string;
}

export const JOB = "kernelAssistant/job";
export const STATUS = "kernelAssistant/status";
export const WATCH_STATUS = "kernelAssistant/watchStatus";

export const isLast = (state: JobState): boolean => state !== "queued" && state !== "running";
