// Reads the two lists: rows of tables with an id and an issue, and lines without an id.

/** Rows `| N-01 | Semantics | what went wrong | …` as { id, issue, text }. */
export function readRows(markdown) {
  const rows = [];
  for (const line of markdown.split('\n')) {
    const cells = line.split('|').map((cell) => cell.trim());
    if (/^[A-Z]-\d{2}$/.test(cells[1] ?? '')) rows.push({ id: cells[1], issue: cells[2], text: cells[3] });
  }
  return rows;
}

/** Lines `- subject: what is demanded [sources]`, without the dash. */
export function readLines(markdown) {
  return [...markdown.matchAll(/^- (.+)$/gm)].map(([, text]) => text.trim());
}
