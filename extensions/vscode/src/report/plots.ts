// Two plots as SVG in the theme's colours: classes, no inline style, so that the page's content policy holds.

import { milliseconds } from "../format.ts";
import { escaped } from "./escape.ts";

const WIDTH = 460;
const HEIGHT = 250;
const LEFT = 76;
const RIGHT = 14;
const TOP = 12;
const BOTTOM = 40;

export interface Point {
    readonly x: number;
    readonly y: number;
    readonly title: string;
    readonly kind: string;
}

export interface Level {
    readonly y: number;
    readonly name: string;
    readonly kind: string;
}

interface Scale {
    readonly at: (value: number) => number;
    readonly ticks: readonly number[];
}

/** Time of each candidate by turn, the best so far as a line, baselines as levels. Both in milliseconds. */
export function speedByTurn(points: readonly Point[], levels: readonly Level[]): string {
    if (points.length === 0) return "";
    const values = [...points.map((point) => point.y), ...levels.map((level) => level.y)];
    const y = logarithmic(values, HEIGHT - BOTTOM, TOP);
    const last = Math.max(...points.map((point) => point.x), 1);
    const x: Scale = {
        at: (turn) => LEFT + ((turn - 0.5) / last) * (WIDTH - LEFT - RIGHT),
        ticks: whole(last),
    };
    const body = [
        axes(x, y, "turn", "time per call", String, tidy),
        ...levels.map((level, index) => levelLine(level, index, y)),
        bestLine(points, x, y),
        dots(points, x, y),
    ];
    return svg("Speed by turn", body);
}

/** Time against bytes that must be moved; the line is what the memory of the device allows. */
export function roofline(bytes: number, bandwidth: number, points: readonly Point[]): string {
    const floor = (moved: number): number => (moved / bandwidth) * 1000;
    const x = logarithmic([bytes / 8, bytes * 8], LEFT, WIDTH - RIGHT);
    const y = logarithmic(
        [floor(bytes / 2), floor(bytes * 2), ...points.map((point) => point.y)],
        HEIGHT - BOTTOM,
        TOP,
    );
    // Beyond the frame, which cuts it: the line and what lies below it reach the edges.
    const low = bytes / 64;
    const high = bytes * 64;
    const line = `<path class="roof" d="M${place(x.at(low))} ${place(y.at(floor(low)))}L${place(x.at(high))} ${place(y.at(floor(high)))}"/>`;
    const below = `<path class="impossible" d="M${place(x.at(low))} ${place(y.at(floor(low)))}L${place(x.at(high))} ${place(y.at(floor(high)))}V${HEIGHT}H${place(x.at(low))}Z"/>`;
    const clip = `<clipPath id="inside"><rect x="${LEFT}" y="${TOP}" width="${WIDTH - LEFT - RIGHT}" height="${HEIGHT - TOP - BOTTOM}"/></clipPath>`;
    const named = points.map((point) => label(point, x, y)).join("");
    return svg("Roofline", [
        clip,
        `<g clip-path="url(#inside)">${below}${line}</g>`,
        axes(x, y, "bytes moved per call", "time per call", short, tidy),
        dots(points, x, y),
        named,
    ]);
}

function svg(name: string, parts: readonly string[]): string {
    return `<svg class="plot" viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img" aria-label="${escaped(name)}">${parts.join("")}</svg>`;
}

function axes(
    x: Scale,
    y: Scale,
    xName: string,
    yName: string,
    xText: (value: number) => string,
    yText: (value: number) => string,
): string {
    const bottom = HEIGHT - BOTTOM;
    const vertical = y.ticks.map(
        (tick) =>
            `<path class="grid" d="M${LEFT} ${place(y.at(tick))}H${WIDTH - RIGHT}"/><text class="tick end" x="${LEFT - 6}" y="${place(y.at(tick) + 4)}">${escaped(yText(tick))}</text>`,
    );
    const horizontal = x.ticks.map(
        (tick) =>
            `<text class="tick middle" x="${place(x.at(tick))}" y="${bottom + 16}">${escaped(xText(tick))}</text>`,
    );
    const names = `<text class="name middle" x="${(LEFT + WIDTH - RIGHT) / 2}" y="${HEIGHT - 6}">${xName}</text><text class="name middle" transform="translate(12 ${(TOP + bottom) / 2}) rotate(-90)">${yName}</text>`;
    return `${vertical.join("")}${horizontal.join("")}<path class="axis" d="M${LEFT} ${TOP}V${bottom}H${WIDTH - RIGHT}"/>${names}`;
}

/** Names stand side by side: two levels may be close to each other. */
function levelLine(level: Level, index: number, y: Scale): string {
    const at = place(y.at(level.y));
    const name = `<text class="tick ${level.kind}" x="${LEFT + 8 + index * 96}" y="${place(y.at(level.y) - 4)}">${escaped(level.name)}</text>`;
    return `<path class="level ${level.kind}" d="M${LEFT} ${at}H${WIDTH - RIGHT}"/>${name}`;
}

/** The lowest so far, as steps. */
function bestLine(points: readonly Point[], x: Scale, y: Scale): string {
    let best = Infinity;
    let path = "";
    for (const point of [...points].sort((a, b) => a.x - b.x || a.y - b.y)) {
        if (point.y >= best) continue;
        best = point.y;
        path += path
            ? `H${place(x.at(point.x))}V${place(y.at(best))}`
            : `M${place(x.at(point.x))} ${place(y.at(best))}`;
    }
    return `<path class="best" d="${path}H${WIDTH - RIGHT}"/>`;
}

function dots(points: readonly Point[], x: Scale, y: Scale): string {
    return points
        .map(
            (point) =>
                `<circle class="dot ${point.kind}" cx="${place(x.at(point.x))}" cy="${place(y.at(point.y))}" r="4"><title>${escaped(point.title)}</title></circle>`,
        )
        .join("");
}

const label = (point: Point, x: Scale, y: Scale): string =>
    `<text class="tick end" x="${place(x.at(point.x) - 9)}" y="${place(y.at(point.y) + 4)}">${escaped(point.title)}</text>`;

function logarithmic(values: readonly number[], from: number, to: number): Scale {
    const positive = values.filter((value) => value > 0);
    const low = Math.log10(Math.min(...positive));
    const high = Math.log10(Math.max(...positive));
    const room = Math.max((high - low) * 0.12, 0.06);
    const [start, end] = [low - room, high + room];
    const at = (value: number): number => from + ((Math.log10(value) - start) / (end - start)) * (to - from);
    return { at, ticks: ticks(10 ** start, 10 ** end) };
}

/** Round numbers between: 1, 2, 5 of each decade, thinned to six; finer ones where a range has too few. */
function ticks(low: number, high: number): number[] {
    for (const digits of [
        [1],
        [1, 3],
        [1, 2, 5],
        [1, 1.5, 2, 3, 4, 5, 6, 8],
        [1, 1.2, 1.4, 1.6, 1.8, 2, 2.3, 2.6, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9],
    ]) {
        const found: number[] = [];
        for (let decade = Math.floor(Math.log10(low)); decade <= Math.ceil(Math.log10(high)); decade += 1) {
            found.push(
                ...digits
                    .map((digit) => Number((digit * 10 ** decade).toPrecision(3)))
                    .filter((value) => value >= low && value <= high),
            );
        }
        if (found.length >= 3) return found.filter((_, index) => index % Math.ceil(found.length / 6) === 0);
    }
    return [low, high].map((value) => Number(value.toPrecision(3)));
}

/** Whole numbers from 1, at most ten. */
function whole(last: number): number[] {
    const step = Math.ceil(last / 10);
    return Array.from({ length: Math.floor((last - 1) / step) + 1 }, (_, index) => 1 + index * step);
}

function short(bytes: number): string {
    const power = Math.max(0, Math.min(4, Math.floor(Math.log10(bytes) / 3)));
    return `${Number((bytes / 1000 ** power).toPrecision(2))} ${["B", "kB", "MB", "GB", "TB"][power]}`;
}

/** As `milliseconds`, without the zeros behind the point that a round number does not need. */
const tidy = (ms: number): string =>
    milliseconds(ms).replace(/(\.\d*?)0+ /, (_, kept: string) => `${kept === "." ? "" : kept} `);

const place = (value: number): string => value.toFixed(1);
