// The script of the result page: puts in what the extension sends, sends clicks back. It makes nothing up itself.

interface Editor {
    postMessage(message: object): void;
    getState(): { readonly html?: string } | undefined;
    setState(state: { readonly html: string }): void;
}
declare function acquireVsCodeApi(): Editor;

const editor = acquireVsCodeApi();
const main = document.querySelector("main");

function show(html: string): void {
    if (main) main.innerHTML = html;
    editor.setState({ html });
}

function open(element: Element): void {
    const command = element.closest<HTMLElement>("[data-command]")?.dataset["command"];
    if (command) return editor.postMessage({ kind: "command", command });
    const candidate = element.closest<HTMLElement>("[data-candidate]")?.dataset["candidate"];
    if (candidate) return editor.postMessage({ kind: "candidate", place: Number(candidate) });
    const tab = element.closest<HTMLElement>("[data-pane]");
    if (tab) choose(tab.dataset["group"] ?? "", tab.dataset["pane"] ?? "0");
}

function choose(group: string, pane: string): void {
    for (const tab of document.querySelectorAll<HTMLElement>(`[data-pane][data-group="${group}"]`)) {
        tab.setAttribute("aria-selected", String(tab.dataset["pane"] === pane));
    }
    for (const body of document.querySelectorAll<HTMLElement>(`[data-body][data-group="${group}"]`)) {
        body.hidden = body.dataset["body"] !== pane;
    }
}

window.addEventListener("message", (event: MessageEvent<{ readonly kind?: string; readonly html?: string }>) => {
    if (event.data.kind === "show" && typeof event.data.html === "string") show(event.data.html);
});
document.addEventListener("click", (event) => event.target instanceof Element && open(event.target));
document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && event.target instanceof Element && event.target.matches("[data-candidate]"))
        open(event.target);
});

const kept = editor.getState()?.html;
if (kept) show(kept);
editor.postMessage({ kind: "ready" });
