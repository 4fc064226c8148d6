// JSON.parse keeps the last of two equal keys without a word. In a file from elsewhere that hides one tensor behind
// another, so the text is walked once more for keys that stand twice in one object.

/** The first key that occurs twice in one object of `text`, which must be valid JSON; undefined if there is none. */
export function duplicateKey(text: string): string | undefined {
  // One set for each open object, undefined for each open array.
  const open: (Set<string> | undefined)[] = [];
  let i = 0;
  while (i < text.length) {
    const c = text[i];
    if (c === '{') open.push(new Set());
    else if (c === '[') open.push(undefined);
    else if (c === '}' || c === ']') open.pop();
    else if (c === '"') {
      const end = endOfString(text, i);
      const keys = open.at(-1);
      if (keys && isKey(text, end)) {
        // Parsed, because "a" and "\u0061" are the same key.
        const key = JSON.parse(text.slice(i, end)) as string;
        if (keys.has(key)) return key;
        keys.add(key);
      }
      i = end;
      continue;
    }
    i += 1;
  }
  return undefined;
}

/** Position after the closing quote of the string that begins at `begin`. */
function endOfString(text: string, begin: number): number {
  let i = begin + 1;
  while (text[i] !== '"') i += text[i] === '\\' ? 2 : 1;
  return i + 1;
}

function isKey(text: string, end: number): boolean {
  let i = end;
  while (i < text.length && ' \t\r\n'.includes(text[i] as string)) i += 1;
  return text[i] === ':';
}
