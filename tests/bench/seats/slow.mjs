// Who is far too slow to be timed again and again: over 20 times the best.
export const TOO_SLOW = 20;

/**
 * A peer that was too slow is not tried on larger workloads of that kind; and on none at all while it has not kept up
 * anywhere. W8, where calls cost more than the work, says nothing against a peer.
 */
export class SlowPeers {
  #kinds = new Map();
  #keptUp = new Set();

  record(name, { id, kind }, tooSlow) {
    if (!tooSlow) this.#keptUp.add(name);
    else if (id !== 'W8') this.#kinds.set(name, (this.#kinds.get(name) ?? new Set()).add(kind));
  }

  /** Whether `name` need not be tried on a workload of this kind. */
  has(name, { kind }) {
    const kinds = this.#kinds.get(name);
    return kinds !== undefined && (kinds.has(kind) || !this.#keptUp.has(name));
  }
}
