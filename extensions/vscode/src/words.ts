// Command lines, split and quoted as a shell would. No VS Code in here.

/** One word of a command line. */
export const quoted = (path: string): string => (/[\s"']/.test(path) ? `'${path.replaceAll("'", "'\\''")}'` : path);

/** A command line as a shell would split it: quotes and backslashes, nothing else. */
export function words(text: string): string[] {
    const parts = text.match(/(?:[^\s"'\\]|\\.|"(?:[^"\\]|\\.)*"|'[^']*')+/g) ?? [];
    return parts.map((part) =>
        part.replace(
            /'([^']*)'|"((?:[^"\\]|\\.)*)"|\\(.)/g,
            (_, single?: string, double?: string, escaped?: string) =>
                single ?? double?.replace(/\\(["\\])/g, "$1") ?? escaped ?? "",
        ),
    );
}
