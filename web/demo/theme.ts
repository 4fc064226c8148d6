// Light or dark: the system's wish, or the reader's, which is remembered.
import type { Scheme } from './ramp.js';

const KEY = 'headwise-theme';
const dark = window.matchMedia('(prefers-color-scheme: dark)');

/** Storage may be forbidden; the choice then lasts as long as the page. */
function remembered(): string {
  try {
    return localStorage.getItem(KEY) ?? 'auto';
  } catch {
    return 'auto';
  }
}

function remember(choice: string): void {
  try {
    localStorage.setItem(KEY, choice);
  } catch {
    // Not remembered, and nothing else is lost.
  }
}

export function currentScheme(): Scheme {
  const choice = document.documentElement.dataset.theme;
  if (choice === 'light' || choice === 'dark') return choice;
  return dark.matches ? 'dark' : 'light';
}

/** Connects the switch; `onChange` is called when the colours of the maps must change. */
export function setUpTheme(onChange: () => void): void {
  const inputs = [...document.querySelectorAll<HTMLInputElement>('input[name="theme"]')];
  const apply = (choice: string): void => {
    document.documentElement.dataset.theme = choice;
    for (const input of inputs) input.checked = input.value === choice;
  };
  const choice = remembered();
  apply(choice === 'light' || choice === 'dark' ? choice : 'auto');
  for (const input of inputs) {
    input.addEventListener('change', () => {
      apply(input.value);
      remember(input.value);
      onChange();
    });
  }
  dark.addEventListener('change', onChange);
}
