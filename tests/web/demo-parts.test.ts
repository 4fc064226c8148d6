// The parts of the demo that need no browser: what heads measurably do, colours, the address.
import { describe, expect, it } from 'vitest';
import { averageMap, compareHeads, headMap, relationShares, spread } from '../../web/demo/head-stats.js';
import type { AttentionMaps } from '../../web/demo/protocol.js';
import { type Scheme, rampTable, toOklab } from '../../web/demo/ramp.js';
import { START, isState, readState, writeState } from '../../web/demo/url-state.js';

/** Heads that look at one piece each: `look(head, query)` is the piece. */
function mapsOf(heads: number, length: number, look: (head: number, query: number) => number): AttentionMaps {
  const data = new Float32Array(heads * length * length);
  for (let head = 0; head < heads; ++head) {
    for (let query = 0; query < length; ++query) data[(head * length + query) * length + look(head, query)] = 1;
  }
  return { data, layers: 1, heads, length };
}

describe('what a head does', () => {
  it('is measured by the share of each relation', () => {
    const length = 7;
    const inside = (key: number): number => Math.min(length - 1, Math.max(0, key));
    const maps = mapsOf(5, length, (head, query) => [query - 1, query + 1, query, 0, query - 2].map(inside)[head]!);
    const [previous, next, itself, ends, near] = Array.from({ length: 5 }, (_, i) =>
      relationShares(headMap(maps, 0, i)),
    );
    // The first word has no word before it: it looks at [CLS].
    expect(previous).toEqual({ previous: 1, next: 0, near: 0, itself: 0, ends: 1 / 5 });
    expect(next).toEqual({ previous: 0, next: 1, near: 0, itself: 0, ends: 1 / 5 });
    expect(itself).toEqual({ previous: 0, next: 0, near: 0, itself: 1, ends: 0 });
    expect(ends).toEqual({ previous: 0, next: 0, near: 0, itself: 0, ends: 1 });
    expect(near).toEqual({ previous: 0, next: 0, near: 3 / 5, itself: 0, ends: 2 / 5 });
    expect(spread(headMap(maps, 0, 0))).toBe(0);
  });

  it('is broad when it spreads evenly', () => {
    const even = { data: new Float32Array(16).fill(0.25), length: 4 };
    expect(spread(even)).toBeCloseTo(1, 6);
    expect(relationShares({ data: Float32Array.of(0.5, 0.5, 0.5, 0.5), length: 2 }).previous).toBe(0);
  });

  it('is hidden by an average when heads differ', () => {
    const alike = mapsOf(4, 5, (_, query) => query);
    const same = compareHeads(alike, averageMap(alike), 2);
    expect(same).toMatchObject({ targets: [2], averageTarget: 2, averageShare: 1, differenceBits: 0, mostBits: 2 });

    const apart = mapsOf(4, 5, (head) => head);
    const different = compareHeads(apart, averageMap(apart), 2);
    expect(different.targets).toEqual([0, 1, 2, 3]);
    expect(different.averageShare).toBe(0.25);
    expect(different.differenceBits).toBeCloseTo(2, 6);
  });
});

describe('the colours', () => {
  // Linear RGB as people without the red-, green- or blue-sensitive cones see it (Machado and others 2009), and grey.
  const SIGHT: Record<string, readonly (readonly [number, number, number])[]> = {
    usual: [
      [1, 0, 0],
      [0, 1, 0],
      [0, 0, 1],
    ],
    protanopia: [
      [0.152, 1.053, -0.205],
      [0.115, 0.786, 0.099],
      [-0.004, -0.048, 1.052],
    ],
    deuteranopia: [
      [0.367, 0.861, -0.228],
      [0.28, 0.673, 0.047],
      [-0.012, 0.043, 0.969],
    ],
    tritanopia: [
      [1.256, -0.077, -0.179],
      [-0.078, 0.931, 0.148],
      [0.005, 0.691, 0.304],
    ],
  };
  const linear = (byte: number): number =>
    byte / 255 <= 0.04045 ? byte / 255 / 12.92 : ((byte / 255 + 0.055) / 1.055) ** 2.4;
  const bytesOf = (value: number): number => {
    const v = Math.min(1, Math.max(0, value));
    return 255 * (v <= 0.0031308 ? 12.92 * v : 1.055 * v ** (1 / 2.4) - 0.055);
  };

  for (const scheme of ['light', 'dark'] satisfies Scheme[]) {
    for (const [sight, matrix] of Object.entries(SIGHT)) {
      it(`grow evenly and never turn back: ${scheme}, ${sight}`, () => {
        const table = rampTable(scheme);
        const lightness = Array.from({ length: 256 }, (_, i) => {
          const rgb = [...table.subarray(3 * i, 3 * i + 3)].map(linear);
          const seen = matrix.map((row) => bytesOf(row[0] * rgb[0]! + row[1] * rgb[1]! + row[2] * rgb[2]!));
          return toOklab(seen as [number, number, number])[0];
        });
        const direction = scheme === 'light' ? -1 : 1;
        expect(direction * (lightness[255]! - lightness[0]!)).toBeGreaterThan(0.55);
        const steps = Array.from({ length: 16 }, (_, i) => direction * (lightness[16 * i + 15]! - lightness[16 * i]!));
        // Sixteen equal pieces of the ramp: none flat, none steep.
        expect(Math.min(...steps)).toBeGreaterThan(0.015);
        expect(Math.max(...steps)).toBeLessThan(0.07);
      });
    }
  }
});

describe('the address', () => {
  it('holds what differs from the start, and reads it back', () => {
    expect(writeState(START)).toBe('');
    const state = { text: 'a & b = "c" ünï __', query: 0, layer: 2, head: 1 };
    expect(readState(writeState(state))).toEqual(state);
    expect(readState('')).toEqual(START);
  });

  it('tells an address of the state from a place in the page', () => {
    expect(['', '#', '#t=river', '#q=3', '#l=2&h=1'].map(isState)).toEqual([true, true, true, true, true]);
    expect(['#sentence', '#x=1', '#%%%'].map(isState)).toEqual([false, false, false]);
  });

  it('falls back from broken values', () => {
    expect(readState('#q=-1&l=0&h=1.5&zzz=1')).toEqual(START);
    expect(readState('#q=abc&l=&h=99999')).toEqual(START);
    expect(readState(`#t=${'x'.repeat(5000)}`).text.length).toBe(600);
  });
});
