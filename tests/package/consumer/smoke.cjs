// As smoke.mjs, by require().
const { check } = require('./check.cjs');
const headwise = require('headwise');
const safetensors = require('headwise/safetensors');
const { version } = require('headwise/package.json');
const wasm = require.resolve('headwise/wasm/headwise.simd.wasm');
check(headwise, safetensors).then((result) => {
  console.log(JSON.stringify({ ...result, version, wasm, node: process.version }));
});
