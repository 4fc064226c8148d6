// What was measured beside peers, as Markdown and as goals.
import { WORKLOADS, flop, workload } from '../workloads.mjs';
import { short, table } from '../tables.mjs';

/** How many times the best peer we want to be, by workload; in Node where it differs. */
const WANTED = {
  W1: 1.4, W2: 1.4, W3: 1.35, W4: 1.5, W5: 1.6, W6a: 1.7, W6b: 1.7, W7a: 4, W7b: 6, W8: 5, W9: 1.4,
};
const WANTED_IN_NODE = { W8: 2.5 };

const OURS = 'headwise';
const timed = (seats) => Object.entries(seats).filter(([, seat]) => seat.ms !== undefined);

/** { name, ms } of the fastest peer, or undefined. */
function bestPeer(seats) {
  return timed(seats).filter(([name]) => name !== OURS).map(([name, { ms }]) => ({ name, ms }))
    .sort((a, b) => a.ms - b.ms)[0];
}

function cell(id, { ms, once, variant, why }) {
  if (ms === undefined) return why ?? '';
  return `${short(ms)} (${short(flop(workload(id)) / ms / 1e6)})${once ? ' once' : ''}${variant ? ` ${variant}` : ''}`;
}

/** Figures of an engine: { W1: { peer: { ms, variant } | { why } } }. */
export function peerTables(figures) {
  const names = [...new Set(Object.values(figures).flatMap((seats) => Object.keys(seats)))];
  const rows = WORKLOADS.filter(({ id }) => figures[id]).map(({ id, title }) => {
    const seats = figures[id];
    const best = bestPeer(seats);
    const ours = seats[OURS]?.ms;
    const ratio = best && ours ? `${(best.ms / ours).toFixed(2)} × ${best.name}` : '';
    return [`${id} ${title}`, ...names.map((name) => cell(id, seats[name] ?? {})), ratio];
  });
  return ['Milliseconds (GFLOP/s), each at its best variant:', table(['', ...names, 'ahead of the best'], rows)];
}

export function peerGoals(engine, figures) {
  const wanted = { ...WANTED, ...(engine.startsWith('Node') && WANTED_IN_NODE) };
  return WORKLOADS.filter(({ id }) => figures[id]).flatMap(({ id, title }) => {
    const best = bestPeer(figures[id]);
    const ours = figures[id][OURS]?.ms;
    if (!best || !ours) return [];
    const ratio = best.ms / ours;
    return [{
      goal: '2', what: `${id} ${title}: times the best peer (${best.name})`, want: `≥ ${wanted[id]}`,
      figure: ratio.toFixed(2), met: ratio >= wanted[id],
    }];
  });
}
