// What a person does in VS Code, in terms of what they see. Every key is pressed until its effect shows: a window under
// construction, or one whose focus is elsewhere for a moment, does not hear it.

import assert from "node:assert/strict";
import type { Locator, Page } from "playwright-core";

/** How long a window may take to show what a key does, before the key is pressed again. */
const HEARD = { timeout: 3000 };
const TRIES = 20;

export class Editor {
    readonly page: Page;

    constructor(page: Page) {
        this.page = page;
    }

    /** The file, through Quick Open. Its row has no other words in its label: reports and diffs name the file, too. */
    async open(name: string): Promise<void> {
        const active = this.page.locator(".tab.active", { hasText: name });
        const label = this.page.locator(".label-name").getByText(name, { exact: true });
        await this.again(`${name} was not opened`, async () => {
            await this.pick("Control+P", name);
            await this.picker.locator(".monaco-list-row").filter({ has: label }).first().click();
            return await shown(active);
        });
    }

    /** A command of the palette, by its title. */
    async command(title: string): Promise<void> {
        await this.pick("F1", `>${title}`);
        await this.choose(title);
    }

    get picker(): Locator {
        return this.page.locator(".quick-input-widget:visible");
    }

    lens(text: string | RegExp): Locator {
        return this.page.locator(".codelens-decoration a", { hasText: text }).first();
    }

    /** Clicks a lens until another one is there: that of a document which has just got another name is still drawn for
     * a moment, and is about a file that is gone. */
    async follow(text: string, then: string): Promise<void> {
        await this.again(`${text} led to no ${then}`, async () => {
            if (await shown(this.lens(text))) await this.lens(text).click();
            return await shown(this.lens(then));
        });
    }

    notification(text: string | RegExp): Locator {
        return this.page.locator(".notifications-toasts .notification-list-item", { hasText: text }).first();
    }

    async press(notification: Locator, button: string): Promise<void> {
        await notification.hover();
        await notification.getByRole("button", { name: button }).first().click();
    }

    /** Types into the input box that is open. */
    async say(words: string): Promise<void> {
        const input = this.picker.locator("input");
        await input.fill(words);
        await input.press("Enter");
    }

    /** A file of the explorer gets another name. */
    async rename(before: string, after: string): Promise<void> {
        const input = this.page.locator(".explorer-folders-view input");
        await this.again(`${before} does not take another name`, async () => {
            await this.page.locator(".explorer-folders-view .monaco-list-row", { hasText: before }).click();
            await this.page.keyboard.press("F2");
            return await shown(input);
        });
        await input.fill(after);
        await input.press("Enter");
    }

    /** Confirms what an input box proposes, once that is `text`. */
    async answer(text: string): Promise<void> {
        const input = this.picker.locator("input");
        for (let tries = 0; tries < 300 && (await input.inputValue()) !== text; tries += 1) {
            await this.page.waitForTimeout(100);
        }
        assert.equal(await input.inputValue(), text);
        await input.press("Enter");
    }

    async save(): Promise<void> {
        const clean = this.page.locator(".tab.active:not(.dirty)");
        await this.again("the file was not saved", async () => {
            await this.page.keyboard.press("Control+S");
            return await shown(clean);
        });
    }

    /** Closes the editor in front, which shows `name` in its tab. */
    async close(name: string): Promise<void> {
        const tab = this.page.locator(".tab", { hasText: name });
        await tab.getByRole("button", { name: /Close/ }).click();
        await tab.waitFor({ state: "detached" });
    }

    /** The cursor at the beginning of a line, counted from 1. */
    async goTo(line: number): Promise<void> {
        await this.pick("Control+G", `:${line}`);
        await this.again(`the picker stays at line ${line}`, async () => {
            await this.page.keyboard.press("Enter");
            return await shown(this.picker, "hidden");
        });
    }

    /** Has VS Code offer what it would put in here, until it does. */
    async suggest(): Promise<void> {
        // On the line itself, or as lines of its own below it.
        const ghost = this.page.locator(".ghost-text-decoration:visible, .ghost-text:visible").first();
        await this.again("nothing is suggested", async () => {
            await this.command("Trigger Inline Suggestion");
            return await shown(ghost);
        });
    }

    /** Has VS Code ask for a suggestion where there is none to give. */
    async suggestNothing(): Promise<void> {
        await this.command("Trigger Inline Suggestion");
        await this.page.waitForTimeout(1000);
    }

    /** The file as it is on disk. */
    async revert(): Promise<void> {
        await this.command("File: Revert File");
        await this.page.locator(".tab.active:not(.dirty)").waitFor();
    }

    /** Text of the page of a webview, once it has `text`. */
    async webview(text: string): Promise<Locator> {
        for (let tries = 0; tries < 300; tries += 1) {
            for (const frame of this.page.frames()) {
                const main = frame.locator("main", { hasText: text });
                if ((await main.count().catch(() => 0)) > 0) return main;
            }
            await this.page.waitForTimeout(100);
        }
        throw new Error(`no webview shows ${text}`);
    }

    /** Opens the picker by its key and types into it. */
    private async pick(key: string, text: string): Promise<void> {
        await this.again(`${key} opened no picker`, async () => {
            await this.page.keyboard.press(key);
            return await shown(this.picker);
        });
        await this.picker.locator("input").fill(text);
    }

    /** The row of the picker with this text, wherever it stands while the list is still being filled. */
    private async choose(text: string): Promise<void> {
        await this.picker.locator(".monaco-list-row", { hasText: text }).first().click();
    }

    private async again(what: string, holds: () => Promise<boolean>): Promise<void> {
        for (let tries = 0; tries < TRIES; tries += 1) {
            if (await holds()) return;
        }
        throw new Error(`${what}; ${await this.situation()}`);
    }

    /** What stands in the tabs, dialogs, pickers and messages: a failure far away has to be understood from text. */
    private async situation(): Promise<string> {
        const texts = async (what: string): Promise<string> =>
            JSON.stringify(await this.page.locator(what).allInnerTexts());
        const parts = [
            ["tabs", ".tab"],
            ["active", ".tab.active"],
            ["dialog", ".monaco-dialog-box"],
            ["picker", ".quick-input-widget:visible .monaco-list-row"],
            ["messages", ".notifications-toasts .notification-list-item"],
        ] as const;
        return (await Promise.all(parts.map(async ([name, where]) => `${name} ${await texts(where)}`))).join(", ");
    }
}

async function shown(place: Locator, state: "visible" | "hidden" = "visible"): Promise<boolean> {
    return await place.waitFor({ ...HEARD, state }).then(
        () => true,
        () => false,
    );
}
