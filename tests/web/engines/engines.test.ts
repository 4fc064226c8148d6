// The contract on bits, in every engine that can be had here: the plain build gives the same ones in all of them, and
// in both builds nothing but a sequence itself decides about its results (known failures T-12, K-01, K-08). Pages run the
// public conformance cases, too; for Node there is a suite.
import { existsSync, mkdirSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type PageServer, servePage } from '../browser/demo-harness.mjs';
import { INVARIANCES } from './cases/invariances.js';
import { ENGINES } from './engines.mjs';

interface CaseHash {
  readonly hash: string;
  readonly numbers: number;
  readonly nans: number;
}
type Hashes = Readonly<Record<string, CaseHash>>;
type Invariances = Readonly<Record<string, Record<string, { trials: number; wrong: string[]; count: number }>>>;
interface Conformance {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
  readonly cases: number;
  readonly lines: string[];
}
interface Opened {
  run(job: string, url: string): Promise<unknown>;
  close(): Promise<void>;
}

const root = fileURLToPath(new URL('../../..', import.meta.url));
const PUBLIC_CASES = join(root, '../shared/conformance');
let folder: string;
let server: PageServer;

beforeAll(async () => {
  // What pages see, and no more: the built package, the tests, and the public cases.
  folder = mkdtempSync(join(tmpdir(), 'headwise-engines-'));
  mkdirSync(join(folder, 'web'));
  symlinkSync(join(root, 'web/dist'), join(folder, 'web/dist'));
  symlinkSync(join(root, 'tests'), join(folder, 'tests'));
  symlinkSync(PUBLIC_CASES, join(folder, 'cases'));
  server = await servePage(folder);
});
afterAll(async () => {
  await server?.close();
  if (folder) rmSync(folder, { recursive: true, force: true });
});

/** A page says so when it failed; Node's process has failed then. */
async function ask<T>(engine: Opened, job: string): Promise<T> {
  const result = (await engine.run(job, server.url)) as T & { error?: string };
  expect(result.error).toBeUndefined();
  return result;
}

/** What the engines that ran so far gave, by their names. */
const seen = new Map<string, Hashes>();

/** The cases in which `engine` differs from the first one that ran: who gives what. */
function disagreements(engine: string): string[] {
  const [first = {}] = seen.values();
  const of = (hashes: Hashes, name: string): string => hashes[name]?.hash ?? 'nothing';
  const own = seen.get(engine)!;
  const names = Object.keys({ ...first, ...own }).filter((name) => of(own, name) !== of(first, name));
  return names.map((name) => {
    const groups = new Map<string, string[]>();
    for (const [by, hashes] of seen) groups.set(of(hashes, name), [...(groups.get(of(hashes, name)) ?? []), by]);
    return `${name}: ${[...groups].map(([hash, engines]) => `${hash} in ${engines.join(', ')}`).join('; ')}`;
  });
}

describe.each(ENGINES)('$name', ({ name, isPage, absent, open }) => {
  const reason = absent();
  const note = reason ? ` (skipped: ${reason})` : '';
  let engine: Opened;
  beforeAll(async () => {
    if (!reason) engine = await open();
  });
  afterAll(() => engine?.close());

  test.skipIf(reason)(`the plain build gives the bits of the other engines${note}`, async () => {
    const hashes = await ask<Hashes>(engine, 'hashes');
    seen.set(name, hashes);
    expect(disagreements(name)).toEqual([]);
    // Each case computes something of its own.
    const cases = Object.values(hashes);
    expect(cases.length).toBeGreaterThan(70);
    expect(new Set(cases.map(({ hash }) => hash)).size).toBe(cases.length);
    for (const { numbers, nans } of cases) expect(nans).toBeLessThan(numbers);
  });

  test.skipIf(reason)(
    `T-12, K-01, K-08 neighbours, padding and steps change no bit, in every build${note}`,
    async () => {
      const builds = await ask<Invariances>(engine, 'invariances');
      expect(Object.keys(builds)[0]).toBe('simd');
      if (['Node 22', 'Node 24', 'Chromium'].includes(name)) expect(Object.keys(builds)).toEqual(['simd', 'relaxed']);
      for (const [build, results] of Object.entries(builds)) {
        expect(Object.keys(results)).toEqual(INVARIANCES.map(({ title }) => title));
        const wrong = Object.entries(results)
          .filter(([, { count }]) => count > 0)
          .map(([title, { trials, count, wrong }]) => `${build}, ${title}: ${count} of ${trials}; ${wrong.join('; ')}`);
        expect(wrong).toEqual([]);
      }
    },
  );

  if (!isPage) return;
  const noCases = existsSync(PUBLIC_CASES) ? undefined : 'the public cases (../shared/conformance) are not here';
  const why = reason ?? noCases;
  test.skipIf(why)(`public conformance cases${why ? ` (skipped: ${why})` : ''}`, async () => {
    const { lines, passed, failed, skipped, cases } = await ask<Conformance>(engine, 'conformance');
    expect(lines).toEqual([]);
    expect(failed).toBe(0);
    expect(passed).toBeGreaterThan(skipped);
    expect(passed + skipped).toBe(cases);
  });
});
