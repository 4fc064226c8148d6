// What an engine is asked to do with the package. Results are JSON.
import { CASES } from '../cases/index.js';
import { INVARIANCES } from '../cases/invariances.js';
import { Random, hashOf } from '../cases/random.js';

/** The builds this engine runs. */
export const variantsOf = ({ detectFeatures }) => (detectFeatures().relaxedSimd ? ['simd', 'relaxed'] : ['simd']);

export const JOBS = {
  /** { case: { hash, numbers, nans } } in the build that promises the same bits everywhere. */
  async hashes(headwise) {
    const runtime = await headwise.load({ variant: 'simd' });
    const result = {};
    CASES.forEach(([name, compute], i) => {
      const results = compute({ ...headwise, runtime, random: new Random(1000 + i) });
      result[name] = hashOf(results);
    });
    return result;
  },

  /** { build: { title: { trials, count, wrong } } }; `wrong` says what went wrong in the first ones. */
  async invariances(headwise) {
    const result = {};
    for (const variant of variantsOf(headwise)) {
      const runtime = await headwise.load({ variant });
      result[variant] = {};
      for (const { title, trials, check } of INVARIANCES) {
        const wrong = [];
        for (let trial = 0; trial < trials; ++trial) {
          const problem = check({ ...headwise, runtime, random: new Random(trial) });
          if (problem !== undefined) wrong.push(`case ${trial}: ${problem}`);
        }
        result[variant][title] = { trials, wrong: wrong.slice(0, 5), count: wrong.length };
      }
    }
    return result;
  },
};
