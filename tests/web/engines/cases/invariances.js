// What may not change a bit of a sequence's results: who else is in the batch, padding and its side, and how the
// sequence was cut into calls. Each entry draws a random case and says what went wrong, or undefined.
import { callInvariances } from './invariant-calls.js';
import { cacheInvariances } from './invariant-caches.js';
import { layerInvariances } from './invariant-layers.js';

export const INVARIANCES = [...callInvariances, ...layerInvariances, ...cacheInvariances];
