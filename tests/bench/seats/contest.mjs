// One workload, all participants: each opens it and proves its numbers, then they take turns; medians.
import { median } from '../measure.mjs';
import { workload } from '../workloads.mjs';
import { TOO_SLOW } from './slow.mjs';

const TURNS = 11;
const TURN_MS = 100;
/** What one participant's turns may take in all, but those near the best get three. */
const MOST_MS = 4000;
const NEAR = 3;

const fastest = (list) => list.filter(({ ms }) => ms !== undefined).sort((a, b) => a.ms - b.ms)[0];

async function begin(hall, name, id) {
  let seat;
  try {
    seat = await hall.seat();
    const variants = await seat.call('begin', name, id);
    const best = fastest(variants);
    if (best) return { name, seat, ...best, variants };
    await seat.leave();
    return { name, why: variants.map(({ variant, why }) => (variant ? `${variant} ${why}` : why)).join('; '), variants };
  } catch (error) {
    await seat?.leave();
    return { name, why: `fails: ${error.message.split('\n')[0].slice(0, 120)}` };
  }
}

async function takeTurns(seats) {
  const times = new Map(seats.map(({ name }) => [name, { list: [], spent: 0 }]));
  const best = fastest(seats).ms;
  for (let i = 0; i < TURNS; i += 1) {
    for (const { name, seat, variant, ms } of seats) {
      const own = times.get(name);
      if (own.spent > MOST_MS && i >= (ms > NEAR * best ? 1 : 3)) continue;
      const repeats = Math.max(1, Math.round(TURN_MS / ms));
      const time = await seat.call('turn', variant, repeats);
      own.list.push(time);
      own.spent += time * repeats;
    }
  }
  return times;
}

/** A first turn for who seems too slow: the first calls may have met compilation, or a busy machine. */
async function secondLook(seats) {
  const best = fastest(seats).ms;
  for (const opened of seats) {
    if (opened.ms > TOO_SLOW * best && opened.ms < MOST_MS / 2) {
      const repeats = Math.max(1, Math.round(TURN_MS / opened.ms));
      opened.ms = Math.min(opened.ms, await opened.seat.call('turn', opened.variant, repeats));
    }
  }
}

/**
 * { name: { ms, variant, once?, error, variants } | { why } } of workload `id`. `slow` is a SlowPeers, which learns.
 */
export async function contest(hall, names, id, slow) {
  const w = workload(id);
  const result = {};
  const seats = [];
  try {
    for (const name of names) {
      if (slow.has(name, w)) {
        result[name] = { why: `over ${TOO_SLOW} times the best on less` };
        continue;
      }
      const { seat, ...opened } = await begin(hall, name, id);
      result[name] = opened;
      if (seat) seats.push({ ...opened, seat });
    }
    if (seats.length === 0) return result;
    await secondLook(seats);
    const best = fastest(seats);
    const racing = seats.filter(({ name, ms }) => {
      const tooSlow = ms > TOO_SLOW * best.ms;
      slow.record(name, w, tooSlow);
      if (tooSlow) Object.assign(result[name], { ms, once: true });
      return !tooSlow;
    });
    for (const [name, { list }] of await takeTurns(racing)) result[name].ms = median(list);
    return result;
  } finally {
    for (const { seat } of seats) await seat.leave();
  }
}
