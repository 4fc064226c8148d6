// Maps on canvas: one image per head, drawn cell by cell into a small bitmap and enlarged without smoothing. (One DOM
// element per cell takes seconds for a dozen heads over a long sentence; this takes a few milliseconds.)
import type { HeadMap } from './head-stats.js';
import { row, strongest } from './head-stats.js';
import { inkOn, rampIndex, rampTable, type Scheme } from './ramp.js';

export interface MapStyle {
  readonly scheme: Scheme;
  /** Divide each row by its strongest share, so that broad rows show their shape too. */
  readonly stretch: boolean;
  /** The asking piece, whose row is marked. */
  readonly query: number;
  /** Colour of the mark. */
  readonly accent: string;
}

// Maps are drawn one after the other, so all of them share one small bitmap, made anew when the length changes.
const small = document.createElement('canvas');
const smallContext = small.getContext('2d', { willReadFrequently: true })!;
let pixels = new ImageData(1, 1);
let pixelWords = new Uint32Array(pixels.data.buffer);

/** The ramp as pixels of an ImageData, which are bytes in the order red, green, blue, opacity. */
function makeWords(scheme: Scheme): Uint32Array {
  const table = rampTable(scheme);
  const bytes = new Uint8Array(4 * (table.length / 3)).fill(255);
  for (let i = 0; i < table.length / 3; ++i) bytes.set(table.subarray(3 * i, 3 * i + 3), 4 * i);
  return new Uint32Array(bytes.buffer);
}
const rampWords: Readonly<Record<Scheme, Uint32Array>> = { light: makeWords('light'), dark: makeWords('dark') };

function bitmap(map: HeadMap, { scheme, stretch }: MapStyle): HTMLCanvasElement {
  const { data, length } = map;
  if (small.width !== length || small.height !== length) {
    small.width = length;
    small.height = length;
    pixels = new ImageData(length, length);
    pixelWords = new Uint32Array(pixels.data.buffer);
  }
  const words = rampWords[scheme];
  for (let query = 0; query < length; ++query) {
    const most = stretch ? mostOf(row(map, query)) : 1;
    for (let cell = query * length; cell < (query + 1) * length; ++cell) {
      pixelWords[cell] = words[rampIndex(data[cell]! / most)]!;
    }
  }
  smallContext.putImageData(pixels, 0, 0);
  return small;
}

const mostOf = (shares: Float32Array): number => shares[strongest(shares)] || 1;

// Asking an element for its width makes the browser lay the page out at once, a dozen times a key; so widths are kept.
const widths = new WeakMap<Element, number>();
let onResize = (): void => {};
const observer = new ResizeObserver((entries) => {
  let changed = false;
  for (const { target, contentRect } of entries) {
    changed ||= widths.get(target) !== contentRect.width;
    widths.set(target, contentRect.width);
  }
  if (changed) onResize();
});

/** `redraw` is called when a canvas has got another width. */
export function whenResized(redraw: () => void): void {
  onResize = redraw;
}

function widthOf(canvas: HTMLCanvasElement): number {
  let width = widths.get(canvas);
  if (width === undefined) {
    // Without its border, like the observer's.
    width = canvas.clientWidth;
    widths.set(canvas, width);
    observer.observe(canvas);
  }
  return width;
}

/** Sizes the canvas for the screen's pixels and returns its context, in CSS pixels, or undefined while it is hidden. */
function prepare(canvas: HTMLCanvasElement, height?: number): [CanvasRenderingContext2D, number] | undefined {
  const width = widthOf(canvas);
  if (width === 0) return undefined;
  const ratio = window.devicePixelRatio || 1;
  const wanted = [Math.round(width * ratio), Math.round((height ?? width) * ratio)] as const;
  const context = canvas.getContext('2d')!;
  if (canvas.width !== wanted[0] || canvas.height !== wanted[1]) [canvas.width, canvas.height] = wanted;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height ?? width);
  return [context, width];
}

function drawCells(
  context: CanvasRenderingContext2D,
  map: HeadMap,
  style: MapStyle,
  left: number,
  top: number,
  size: number,
): void {
  const cell = size / map.length;
  context.imageSmoothingEnabled = false;
  context.drawImage(bitmap(map, style), left, top, size, size);
  context.strokeStyle = style.accent;
  context.lineWidth = 2;
  context.strokeRect(left + 1, top + style.query * cell - 1, size - 2, cell + 2);
}

/** A head's small map: it fills the canvas. */
export function drawTile(canvas: HTMLCanvasElement, map: HeadMap, style: MapStyle): void {
  const prepared = prepare(canvas);
  if (!prepared) return;
  const [context, width] = prepared;
  drawCells(context, map, style, 0, 0, width);
}

const LABEL_SIZE = 12;
/** Cells narrower than this have no room for a label or a number of their own. */
const LABELLED_CELL = 9.5;
const NUMBERED_CELL = 26;

/** The large map with the words on both sides, and with numbers while the cells have room. */
export function drawCloseUp(
  canvas: HTMLCanvasElement,
  map: HeadMap,
  names: readonly string[],
  style: MapStyle & { readonly ink: string; readonly font: string },
): void {
  const probe = canvas.getContext('2d')!;
  probe.font = `${LABEL_SIZE}px ${style.font}`;
  const longest = Math.max(...names.map((name) => probe.measureText(name).width));
  const margin = Math.ceil(Math.min(longest, widthOf(canvas) / 4)) + 8;
  const size = widthOf(canvas) - margin - 2;
  const prepared = prepare(canvas, margin + size + 2);
  if (!prepared) return;
  const [context] = prepared;
  const cell = size / map.length;
  drawCells(context, map, style, margin, margin, size);

  const target = strongest(row(map, style.query));
  const label = (name: string, marked: boolean): void => {
    if (cell < LABELLED_CELL && !marked) return;
    const size = marked ? LABEL_SIZE : Math.min(LABEL_SIZE, cell);
    context.font = `${marked ? 'bold ' : ''}${size}px ${style.font}`;
    context.fillStyle = marked ? style.accent : style.ink;
    context.fillText(name, 0, 0, margin - 8);
  };
  context.textBaseline = 'middle';
  names.forEach((name, index) => {
    const middle = margin + (index + 0.5) * cell;
    context.save();
    context.textAlign = 'right';
    context.translate(margin - 6, middle);
    label(name, index === style.query);
    context.restore();
    context.save();
    context.textAlign = 'left';
    context.translate(middle, margin - 6);
    context.rotate(-Math.PI / 2);
    label(name, index === target);
    context.restore();
  });

  if (cell < NUMBERED_CELL) return;
  context.textAlign = 'center';
  context.font = `${Math.min(14, cell / 2.6)}px ${style.font}`;
  for (let query = 0; query < map.length; ++query) {
    const shares = row(map, query);
    const most = style.stretch ? mostOf(shares) : 1;
    shares.forEach((share, key) => {
      context.fillStyle = inkOn(style.scheme, share / most);
      context.fillText((100 * share).toFixed(0), margin + (key + 0.5) * cell, margin + (query + 0.5) * cell);
    });
  }
}

/** The colour bar: none on the left, full attention on the right. */
export function drawBar(canvas: HTMLCanvasElement, scheme: Scheme): void {
  const table = rampTable(scheme);
  const image = new ImageData(256, 1);
  for (let i = 0; i < 256; ++i) image.data.set([table[3 * i]!, table[3 * i + 1]!, table[3 * i + 2]!, 255], 4 * i);
  canvas.getContext('2d')!.putImageData(image, 0, 0);
}

/** Which cell of a tile lies under the pointer. */
export function cellAt(canvas: HTMLCanvasElement, length: number, event: MouseEvent): { query: number; key: number } {
  const box = canvas.getBoundingClientRect();
  const at = (offset: number, size: number): number =>
    Math.min(length - 1, Math.max(0, Math.floor((offset / size) * length)));
  return { query: at(event.clientY - box.top, box.height), key: at(event.clientX - box.left, box.width) };
}
