/** Text that means itself in HTML, SVG and attributes. */
export const escaped = (text: string): string =>
    text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
