// Versions as Python packages have them, compared by their numbers.

/** The first extension release that a server must at least be of. */
export const LEAST_SERVER = "0.1.0";
export const LEAST_PYTHON = "3.11";

export function atLeast(version: string, least: string): boolean {
    const [have, want] = [numbers(version), numbers(least)];
    for (let place = 0; place < Math.max(have.length, want.length); place += 1) {
        const difference = (have[place] ?? 0) - (want[place] ?? 0);
        if (difference !== 0) return difference > 0;
    }
    return true;
}

function numbers(version: string): number[] {
    const found = /^\d+(\.\d+)*/.exec(version.trim());
    return found ? found[0].split(".").map(Number) : [0];
}
