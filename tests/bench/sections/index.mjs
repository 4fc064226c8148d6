// The sections that run inside an engine: (env) => figures. env is { headwise, readBytes, effort, quick?, ids? }.
import { masks } from './masks.mjs';
import { oddSizes } from './odd-sizes.mjs';
import { tiny } from './tiny.mjs';
import { workloads } from './workloads.mjs';

export const SECTIONS = { workloads, masks, tiny, 'odd-sizes': oddSizes };
