// What setup.mjs provides.
import { inject } from 'vitest';

export interface Packed {
  readonly tarball: string;
  readonly bytes: number;
  /** Paths inside the package. */
  readonly files: readonly string[];
  /** An empty project with the package installed. */
  readonly consumer: string;
}

declare module 'vitest' {
  export interface ProvidedContext {
    packed: Packed;
  }
}

export const packed = (): Packed => inject('packed');
