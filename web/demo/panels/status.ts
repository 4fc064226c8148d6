// The strip at the foot of the page: what ran, and how long the last real forward pass took.
import type { RuntimeReport } from 'headwise';
import { byId, make } from '../dom.js';

const VARIANTS: Readonly<Record<string, string>> = { simd: 'SIMD', relaxed: 'relaxed SIMD' };

const megabytes = (bytes: number): string => `${(bytes / 2 ** 20).toFixed(1)} MiB`;
const duration = (milliseconds: number): string =>
  milliseconds < 10 ? `${milliseconds.toFixed(1)} ms` : `${milliseconds.toFixed(0)} ms`;

export interface LastPass {
  readonly milliseconds: number;
  readonly pieces: number;
}

export class StatusStrip {
  readonly #line = byId('strip-line', HTMLSpanElement);
  readonly #details = byId('strip-details', HTMLDListElement);

  say(text: string): void {
    this.#line.textContent = text;
  }

  show(report: RuntimeReport, last?: LastPass): void {
    const variant = VARIANTS[report.variant] ?? report.variant;
    const facts = [
      `WebAssembly ${variant}`,
      `${report.threads} ${report.threads === 1 ? 'thread' : 'threads'}`,
      ...(last ? [duration(last.milliseconds)] : []),
      megabytes(report.heapBytes),
      `headwise ${report.version}`,
    ];
    this.#line.replaceChildren(
      ...facts.flatMap((fact, i) => [...(i > 0 ? [' · '] : []), make('span', { className: 'fact' }, fact)]),
    );
    this.#details.replaceChildren(
      ...[
        ['Build', `${report.variant}, instruction set ${report.simdTarget}`],
        ...report.notUsed.map(({ variant: other, reason }): [string, string] => [`Not used: ${other}`, reason]),
        ...(last
          ? [['Last forward pass', `${last.milliseconds.toFixed(2)} ms for ${last.pieces} pieces, all layers`]]
          : []),
        ['WebAssembly memory', `${report.heapBytes.toLocaleString('en')} bytes`],
        ['Module', report.source],
        ['Page', window.crossOriginIsolated ? 'cross-origin isolated' : 'not cross-origin isolated; not needed here'],
      ].flatMap(([term, text]) => [make('dt', {}, term!), make('dd', {}, text!)]),
    );
  }
}
