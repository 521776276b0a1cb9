// What a person does in VS Code, in terms of what they see.

import type { Locator, Page } from "playwright-core";

export class Editor {
    readonly page: Page;

    constructor(page: Page) {
        this.page = page;
    }

    /** Opens the picker by its key, again where a window that is still being built did not hear it. */
    private async pick(key: string): Promise<void> {
        for (let tries = 0; tries < 20; tries++) {
            await this.page.keyboard.press(key);
            const waited = this.picker.waitFor({ timeout: 3000 });
            const shown = await waited.then(
                () => true,
                () => false,
            );
            if (shown) {
                return;
            }
        }
        throw new Error(`${key} opened no picker`);
    }

    /** The file, through Quick Open. */
    async open(name: string): Promise<void> {
        await this.pick("Control+P");
        await this.picker.locator("input").fill(name);
        await this.picker.locator(".monaco-list-row", { hasText: name }).first().waitFor();
        await this.page.keyboard.press("Enter");
        await this.page.locator(".tab.active", { hasText: name }).waitFor();
    }

    /** A command of the palette, by its title. */
    async command(title: string): Promise<void> {
        await this.pick("F1");
        await this.picker.locator("input").fill(`>${title}`);
        await this.picker.locator(".monaco-list-row", { hasText: title }).first().waitFor();
        await this.page.keyboard.press("Enter");
    }

    get picker(): Locator {
        return this.page.locator(".quick-input-widget:visible");
    }

    lens(text: string | RegExp): Locator {
        return this.page.locator(".codelens-decoration a", { hasText: text }).first();
    }

    notification(text: string | RegExp): Locator {
        return this.page.locator(".notifications-toasts .notification-list-item", { hasText: text }).first();
    }

    async press(notification: Locator, button: string): Promise<void> {
        await notification.hover();
        await notification.getByRole("button", { name: button }).first().click();
    }

    async save(): Promise<void> {
        await this.page.keyboard.press("Control+S");
        await this.page.locator(".tab.active.dirty").waitFor({ state: "detached" });
    }

    /** The cursor at the end of a line, counted from 1. */
    async goTo(line: number, column = 1): Promise<void> {
        await this.pick("Control+G");
        await this.picker.locator("input").fill(`:${line}:${column}`);
        await this.page.keyboard.press("Enter");
        await this.picker.waitFor({ state: "hidden" });
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
}
