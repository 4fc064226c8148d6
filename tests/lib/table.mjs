// The closing table of `npm test`.

const counted = ({ passed, failed, skipped }) => `${passed} passed, ${failed} failed, ${skipped} skipped`;

/** The commonest reasons; those that begin with a number of cases by that number. */
function shortList(reasons) {
  const weight = (line) => Number(/^(?:skipped:? )?(\d+):/i.exec(line)?.[1] ?? 0);
  const lines = [...new Set(reasons)].sort((a, b) => weight(b) - weight(a));
  const shown = lines.slice(0, 5).map((line) => `    skipped: ${line.replace(/^skipped:? ?/i, '')}`);
  if (lines.length > shown.length) shown.push(`    … and ${lines.length - shown.length} reasons more`);
  return shown;
}

/** results: [{ title, passed, failed, skipped, reasons, note }]; returns the lines, the sum last. */
export function closingTable(results) {
  const width = Math.max(...results.map(({ title }) => title.length));
  const lines = [];
  const sum = { passed: 0, failed: 0, skipped: 0 };
  for (const result of results) {
    const note = result.note ? `  (${result.note})` : '';
    lines.push(`${`${result.title}:`.padEnd(width + 1)} ${counted(result)}${note}`);
    if (result.skipped || result.absent) lines.push(...shortList(result.reasons ?? []));
    for (const key of Object.keys(sum)) sum[key] += result[key];
  }
  return { lines, sum, total: counted(sum) };
}
