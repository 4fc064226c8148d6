// The lines of BEHAVIOURS.md, each with the id that its tests carry. The text is the whole line, so that a change of it
// is noticed. Beside it may stand
//   differs      what is decided otherwise here, and why; the test shows what happens instead
//   later        which part of the line has to wait
//   notForward   why no test of the forward pass can show it; then none is asked for
import { CALLS } from './lines-calls.mjs';
import { LAYERS } from './lines-layers.mjs';
import { MASKS } from './lines-masks.mjs';

export const LINES = [...LAYERS, ...MASKS, ...CALLS];
