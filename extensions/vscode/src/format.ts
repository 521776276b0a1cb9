// Numbers as people read them; the same forms as the command line's.

export function milliseconds(ms: number | null | undefined): string {
    if (ms === null || ms === undefined || !Number.isFinite(ms)) return "–";
    if (ms >= 1000) return `${digits(ms / 1000)} s`;
    return ms >= 0.1 ? `${digits(ms)} ms` : `${digits(ms * 1000)} µs`;
}

export const times = (factor: number | null | undefined): string =>
    factor === null || factor === undefined ? "–" : `${factor.toFixed(2)}×`;

export const percent = (share: number | null | undefined): string =>
    share === null || share === undefined ? "–" : `${Math.round(share * 100)}%`;

export function bytes(count: number | null | undefined): string {
    if (count === null || count === undefined) return "–";
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let value = count;
    let unit = 0;
    while (value >= 1024 && unit < units.length - 1) {
        value /= 1024;
        unit += 1;
    }
    return `${unit === 0 ? value : digits(value)} ${units[unit]}`;
}

export const scientific = (value: number | null | undefined): string =>
    value === null || value === undefined ? "–" : value === 0 ? "0" : value.toExponential(1).replace("e+0", "");

/** Three significant digits, and none dropped before the point. */
function digits(value: number): string {
    return value >= 100 ? value.toFixed(0) : value.toPrecision(3);
}
