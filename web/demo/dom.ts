// Small helpers to build the page without a library: the page has few elements, and the maps are on canvas.

/** The element of the page with this id; a missing one is a mistake in index.html. */
export function byId<T extends HTMLElement>(id: string, type: new () => T): T {
  const element = document.getElementById(id);
  if (!(element instanceof type)) throw new Error(`index.html has no ${type.name} with id "${id}"`);
  return element;
}

type Child = Node | string;

/** Makes an element; `properties` are DOM properties, and attributes where the name has a hyphen. */
export function make<K extends keyof HTMLElementTagNameMap>(
  name: K,
  properties: Readonly<Record<string, string | number | boolean>> = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key.includes('-') || key === 'role') element.setAttribute(key, String(value));
    else Object.assign(element, { [key]: value });
  }
  element.append(...children);
  return element;
}

/** "61 %", and with two digits "61.32 %": a thin space, as books set it. */
export const percent = (share: number, digits = 0): string => `${(100 * share).toFixed(digits)}\u202f%`;

/** "a", "a and b", "a, b and c" */
export function listed(items: readonly string[]): string {
  return items.length < 2 ? items.join('') : `${items.slice(0, -1).join(', ')} and ${items.at(-1)}`;
}

/** A piece as the page writes it: "##s" continues a word and is shown as "·s". */
export const pieceName = (piece: string): string => piece.replace(/^##/u, '·');
