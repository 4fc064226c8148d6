// A seat in a process of Node: calls come as messages { id, method, args }, and go back as { id, value } or { id, error }.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import * as headwise from 'headwise';
import { Seat } from './seat.mjs';

const peers = new URL('../peers/', import.meta.url);
const seat = new Seat({
  isPage: false,
  threads: 1,
  headwise,
  require: createRequire(peers),
  readPeer: (path) => readFileSync(new URL(`node_modules/${path}`, peers)),
});

process.on('message', async ({ id, method, args }) => {
  try {
    process.send({ id, value: await seat[method](...args) });
  } catch (error) {
    process.send({ id, error: String(error?.stack ?? error) });
  }
});
process.send({ id: 'ready' });
