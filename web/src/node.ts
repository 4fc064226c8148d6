// The package for Node: as for browsers, and .wasm files are read from disk.
import { readFile } from 'node:fs/promises';
import { pathToFileURL } from 'node:url';
import { setLocalFiles } from './platform.js';

setLocalFiles({
  read: (url) => readFile(url),
  resolve: (path) => (URL.canParse(path) && !/^[a-z]:\\/i.test(path) ? new URL(path) : pathToFileURL(path)),
});

export * from './index.js';
