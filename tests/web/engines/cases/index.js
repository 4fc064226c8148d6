// Every case whose bits are compared between engines.
import { ATTENTION_CASES } from './attention.js';
import { FUNCTION_CASES } from './functions.js';
import { LAYER_CASES } from './layers.js';

export const CASES = [...ATTENTION_CASES, ...FUNCTION_CASES, ...LAYER_CASES];
