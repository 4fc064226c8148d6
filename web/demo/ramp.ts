// Colours of the maps: from the paper's tone through grey to navy in light mode, from navy through grey to yellow in
// dark mode, so that strong attention always stands far from the background. Like cividis, the ramp stays on the
// blue–yellow line, which red-green colour blindness leaves intact, and its lightness changes evenly (in OKLab), which
// keeps it readable in grey.

export type Scheme = 'light' | 'dark';

type Triple = readonly [number, number, number];

/** sRGB of no, half and full attention. */
const ANCHORS: Readonly<Record<Scheme, readonly [Triple, Triple, Triple]>> = {
  light: [
    [0xf5, 0xf0, 0xdd],
    [0x8d, 0x8e, 0x8c],
    [0x00, 0x20, 0x4c],
  ],
  dark: [
    [0x0a, 0x21, 0x47],
    [0x7f, 0x7d, 0x79],
    [0xff, 0xe9, 0x53],
  ],
};

const STEPS = 256;

const toLinear = (byte: number): number => {
  const value = byte / 255;
  return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
};

const toByte = (linear: number): number => {
  const value = linear <= 0.0031308 ? 12.92 * linear : 1.055 * linear ** (1 / 2.4) - 0.055;
  return Math.round(255 * Math.min(1, Math.max(0, value)));
};

/** Lightness and the two colour axes of OKLab. */
export function toOklab([red, green, blue]: Triple): Triple {
  const r = toLinear(red);
  const g = toLinear(green);
  const b = toLinear(blue);
  const l = Math.cbrt(0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b);
  const m = Math.cbrt(0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b);
  const s = Math.cbrt(0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b);
  return [
    0.2104542553 * l + 0.793617785 * m - 0.0040720468 * s,
    1.9779984951 * l - 2.428592205 * m + 0.4505937099 * s,
    0.0259040371 * l + 0.7827717662 * m - 0.808675766 * s,
  ];
}

function fromOklab([lightness, a, b]: Triple): Triple {
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    toByte(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s),
    toByte(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s),
    toByte(-0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s),
  ];
}

function makeTable(scheme: Scheme): Uint8Array {
  const [none, half, full] = ANCHORS[scheme].map(toOklab) as [Triple, Triple, Triple];
  const table = new Uint8Array(3 * STEPS);
  for (let i = 0; i < STEPS; ++i) {
    const at = i / (STEPS - 1);
    // Lightness runs straight from end to end; the colour passes through the middle anchor's grey.
    const [from, to, part] = at < 0.5 ? [none, half, 2 * at] : [half, full, 2 * at - 1];
    table.set(
      fromOklab([
        none[0] + at * (full[0] - none[0]),
        from[1] + part * (to[1] - from[1]),
        from[2] + part * (to[2] - from[2]),
      ]),
      3 * i,
    );
  }
  return table;
}

const tables: Readonly<Record<Scheme, Uint8Array>> = { light: makeTable('light'), dark: makeTable('dark') };

/** 256 colours, three bytes each, for shares from 0 to 1. */
export const rampTable = (scheme: Scheme): Uint8Array => tables[scheme];

/** Index of a share into the table. */
export const rampIndex = (share: number): number => Math.round(Math.min(1, Math.max(0, share)) * (STEPS - 1));

/** The ink, black or white, that reads best on the colour of `share`. */
export function inkOn(scheme: Scheme, share: number): '#000' | '#fff' {
  const at = 3 * rampIndex(share);
  const [lightness] = toOklab([...rampTable(scheme).subarray(at, at + 3)] as unknown as Triple);
  return lightness > 0.62 ? '#000' : '#fff';
}
