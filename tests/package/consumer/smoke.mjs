// Run with the packed package installed beside it, by every Node version: imports every documented name, computes a
// worked example in every build the engine can run, and prints one line of JSON.
import * as headwise from 'headwise';
import * as safetensors from 'headwise/safetensors';
import { createRequire } from 'node:module';
import { check } from './check.cjs';

const require = createRequire(import.meta.url);
const { version } = require('headwise/package.json');
const wasm = import.meta.resolve('headwise/wasm/headwise.simd.wasm');
console.log(JSON.stringify({ ...(await check(headwise, safetensors)), version, wasm, node: process.version }));
