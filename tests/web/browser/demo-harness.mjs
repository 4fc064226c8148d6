// Serves a built page the hard way and opens it in Chromium: from a sub-path, under the strict policy, and without the
// headers of cross-origin isolation. Used by the browser tests and by the screenshots.
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { extname, join, normalize, sep } from 'node:path';
import { chromium } from 'playwright-core';
import { ensureChromium } from '../browsers.mjs';

export const POLICY = "default-src 'self'; script-src 'self' 'wasm-unsafe-eval'";

const TYPES = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript',
  '.mjs': 'text/javascript',
  '.json': 'application/json',
  '.css': 'text/css',
  '.svg': 'image/svg+xml',
  '.wasm': 'application/wasm',
  '.txt': 'text/plain; charset=utf-8',
};

/**
 * Serves `folder` at http://127.0.0.1:PORT/some/where/. block() makes it refuse some.
 */
export async function servePage(folder, policy = POLICY) {
  const base = '/some/where/';
  const state = { blocked: undefined };
  const server = createServer(async (request, response) => {
    const path = decodeURIComponent(new URL(request.url ?? '/', 'http://localhost').pathname);
    const headers = { 'content-security-policy': policy, 'cache-control': 'no-store' };
    const file = normalize(join(folder, path.slice(base.length) || 'index.html'));
    if (!path.startsWith(base) || !file.startsWith(folder + sep)) {
      response.writeHead(404, headers).end('not here');
      return;
    }
    if (state.blocked?.test(path)) {
      response.writeHead(503, headers).end('blocked by the test');
      return;
    }
    try {
      const bytes = await readFile(file);
      const type = TYPES[extname(file)] ?? 'application/octet-stream';
      // Browsers ask for the icon again with every new address in the bar, unless they may keep it.
      const keep = type === 'image/svg+xml' ? { 'cache-control': 'max-age=60' } : {};
      response.writeHead(200, { ...headers, ...keep, 'content-type': type });
      response.end(bytes);
    } catch {
      response.writeHead(404, headers).end('no such file');
    }
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve()));
  const { port } = server.address();
  return {
    origin: `http://127.0.0.1:${port}`,
    url: `http://127.0.0.1:${port}${base}`,
    block(pattern) {
      state.blocked = pattern;
    },
    close() {
      return new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      });
    },
  };
}

/** Where Chromium is, and what keeps it to itself. */
export async function chromiumOptions() {
  return {
    executablePath: await ensureChromium(),
    args: [
      '--no-sandbox',
      '--disable-gpu',
      '--disable-quic',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
      '--no-first-run',
    ],
  };
}

export async function launchChromium() {
  return chromium.launch(await chromiumOptions());
}
