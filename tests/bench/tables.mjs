// Figures as Markdown.
import { reasonOf } from './reasons.mjs';
import { WORKLOADS, keyLength } from './workloads.mjs';

/** How many of the odd sizes are shown. */
const WORST = 5;

export function table(header, rows) {
  const line = (cells) => `| ${cells.join(' | ')} |`;
  return [line(header), line(header.map(() => '---')), ...rows.map(line)].join('\n');
}

export const short = (value) => (value >= 100 ? value.toFixed(0) : value.toPrecision(3));
const percent = (ratio) => `${(100 * ratio).toFixed(1)} %`;

function verdict(row, reasons) {
  if (row.met) return 'pass';
  const reason = reasonOf(row, reasons);
  return reason ? `**fail**: ${reason}` : '**fail**';
}

export const goalTable = (rows, reasons) => table(['goal', 'what', 'wanted', 'measured', ''],
  rows.map((row) => [row.goal, row.what, row.want, row.figure, verdict(row, reasons)]));

function workloadTable(measured) {
  const builds = Object.keys(Object.values(measured)[0].builds);
  const rows = WORKLOADS.filter(({ id }) => measured[id]).map((w) => {
    const { peak, read, builds: figures } = measured[w.id];
    return [w.id, w.title, String(w.batch), String(w.length), String(keyLength(w)), String(w.embedDim),
      String(w.numHeads), short(peak), read === null ? '' : short(read), ...builds.flatMap((build) => {
        const { ms, gflops, gbps } = figures[build];
        return [short(ms), gbps === null ? short(gflops) : `${short(gflops)}; ${short(gbps)} GB/s`];
      })];
  });
  return table(['', 'work', 'B', 'L', 'S', 'E', 'H', 'peak GFLOP/s', 'read GB/s',
    ...builds.flatMap((build) => [`${build} ms`, 'GFLOP/s'])], rows);
}

function maskTable({ window, documents, builds }) {
  const rows = Object.entries(builds).flatMap(([build, { causal, growing }]) => [
    [build, 'W5', 'causal', '', percent(causal.attention), `whole layer: ${percent(causal.layer)}`],
    ...growing.flatMap((at) => [['window', `window of ${window}`], ['documents', `${documents} documents`]]
      .map(([name, title]) => [build, String(at.length), title, short(at[name]), percent(at[name] / at.full),
        `full: ${short(at.full)} ms`])),
  ]);
  return table(['build', 'L', 'mask', 'ms', 'of full', ''], rows);
}

const tinyTable = (measured) => table(['build', 'a call, µs', 'a round of a loop inside WASM, µs'],
  Object.entries(measured).map(([build, { call, inside }]) => [build, call.toFixed(1), inside.toFixed(1)]));

function oddTable(measured) {
  const rows = Object.entries(measured).flatMap(([build, { width, length }]) => [['D', width], ['L', length]]
    .map(([letter, list]) => [build, letter, ...[...list].sort((a, b) => b.ratio - a.ratio).slice(0, WORST)
      .map(({ size, near, ratio }) => `${size} beside ${near}: ${ratio.toFixed(2)}`)]));
  return table(['build', '', ...Array.from({ length: WORST }, (_, i) => (i === 0 ? 'worst' : ''))], rows);
}

/** The sections of one engine, with their titles. */
export function sectionTables(figures) {
  return [
    ...(figures.workloads ? ['Our builds, one thread (copies in and out count as time):',
      workloadTable(figures.workloads)] : []),
    ...(figures.masks ? ['Masks:', maskTable(figures.masks)] : []),
    ...(figures.tiny ? ['W8, the tiny layer:', tinyTable(figures.tiny)] : []),
    ...(figures['odd-sizes'] ? ['Odd sizes, time per element over that of the neighbouring multiple of 8:',
      oddTable(figures['odd-sizes'])] : []),
  ];
}
