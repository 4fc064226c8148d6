// The coverage as text. Its last line is counted by the test runner.

const WIDTH = 30;

function row({ id, files }, done) {
  const where = files.length > 0 ? files.join(', ') : done ? 'NO TEST' : '-';
  return `  ${id.padEnd(WIDTH)}${where}`;
}

export function reportLines({ groups, faults }, table) {
  const out = [];
  for (const { name, done, demands } of groups) {
    const shown = demands.filter(({ files }) => files.length > 0).length;
    const state = done ? '' : ', waiting for its issue';
    out.push(`${name}: ${shown} of ${demands.length} have a test${state}`);
    out.push(...demands.map((demand) => row(demand, done)), '');
  }
  const section = (title, name) => {
    const entries = table.filter((entry) => entry[name] !== undefined);
    if (entries.length > 0) out.push(title, ...entries.map((e) => `  ${e.id.padEnd(WIDTH)}${e[name]}`), '');
  };
  section('Decided otherwise:', 'differs');
  section('In part later:', 'later');
  section('Not of the forward pass:', 'notForward');
  if (faults.length > 0) out.push('MISSING OR WRONG:', ...faults.map((fault) => `  ${fault}`), '');

  const count = (done) => groups.filter((group) => group.done === done).flatMap(({ demands }) => demands);
  const passed = count(true).filter(({ files }) => files.length > 0).length;
  const waiting = count(false).length;
  if (waiting > 0) out.push(`skipped ${waiting}: their issues are not done yet`);
  out.push(`${passed} passed, ${faults.length} failed, ${waiting} skipped`);
  return out;
}
