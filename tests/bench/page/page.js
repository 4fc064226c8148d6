// Sections in a page: measure(section, options) is called from outside.
import * as headwise from '../../../web/dist/index.js';
import { EFFORT, QUICK } from '../measure.mjs';
import { SECTIONS } from '../sections/index.mjs';

const base = new URL('../../../', import.meta.url);

async function readBytes(path) {
  const response = await fetch(new URL(path, base));
  if (!response.ok) throw new Error(`${path} answered status ${response.status}`);
  return response.arrayBuffer();
}

globalThis.measure = (name, options) =>
  SECTIONS[name]({ headwise, readBytes, effort: options.quick ? QUICK : EFFORT, ...options });
