// Two bundles: the extension (Node, `vscode` is given by the editor) and the script of the result page (browser).
import { copyFile } from "node:fs/promises";
import { build } from "esbuild";

const shared = {
    bundle: true,
    minify: process.argv.includes("--production"),
    sourcemap: process.argv.includes("--production") ? false : "linked",
    logLevel: "warning",
};
await build({
    ...shared,
    entryPoints: ["src/extension.ts"],
    outfile: "dist/extension.cjs",
    format: "cjs",
    platform: "node",
    target: "node20",
    external: ["vscode"],
});
await build({
    ...shared,
    entryPoints: ["src/report/page/page.ts"],
    outfile: "dist/page.js",
    format: "iife",
    platform: "browser",
    target: "es2022",
});
// The package carries the licence; it is kept in one place.
await copyFile("../../LICENSE", "LICENSE");
