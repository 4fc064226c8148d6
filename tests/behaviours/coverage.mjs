// Lists and tests brought together: what is shown, what is missing, what waits, and where the lists and our table of
// lines disagree.

/**
 * rows: of the list of known failures; lines: texts of BEHAVIOURS.md; table: ours, of { id, line, … };
 * carried: id → files. Gives { groups, faults }: a group for each issue, a fault for each thing that must not be.
 */
export function coverage({ rows, lines, table, carried, issues, issueOfLines }) {
  const faults = [];
  const known = new Map(table.map((entry) => [entry.line, entry]));
  const demands = [...rows];
  for (const text of lines) {
    const entry = known.get(text);
    if (entry === undefined) faults.push(`no id for this line, new or changed: ${text}`);
    else if (entry.notForward === undefined) demands.push({ ...entry, text, issue: issueOfLines });
  }
  const texts = new Set(lines);
  for (const { id, line } of table) {
    if (!texts.has(line)) faults.push(`${id} stands for a line that is gone or changed: ${line}`);
  }
  const ids = [...rows, ...table].map(({ id }) => id);
  for (const id of new Set(ids.filter((id, at) => ids.indexOf(id) !== at))) faults.push(`${id} is there twice`);

  const isOurs = new Set(ids);
  const families = new Set(ids.map(familyOf));
  for (const [id, files] of carried) {
    if (!isOurs.has(id) && families.has(familyOf(id))) faults.push(`${id} in ${files.join(', ')} is on no list`);
  }

  const names = new Set(issues.map(({ name }) => name));
  for (const { id, issue } of demands) if (!names.has(issue)) faults.push(`${id} names an unknown issue: ${issue}`);
  const groups = issues.map(({ name, done }) => ({
    name,
    done,
    demands: demands
      .filter(({ issue }) => issue === name)
      .map((demand) => ({ ...demand, files: carried.get(demand.id) ?? [] })),
  }));
  for (const { name, done, demands: ofIssue } of groups) {
    if (!done) continue;
    for (const { id, text, files } of ofIssue) {
      if (files.length === 0) faults.push(`${name}: no test carries ${id}: ${text}`);
    }
  }
  return { groups, faults };
}

/** N of N-05, masks of masks/broadcast. */
const familyOf = (id) => /^([A-Z])-\d|^([a-z-]+\/)/.exec(id)?.[0].replace(/-\d$/, '');
