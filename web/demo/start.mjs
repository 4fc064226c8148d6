// npm start: sets up what is missing, builds the WASM modules, the package and the demo, and serves the demo.
//
//   npm start                   serve until Ctrl-C
//   npm start -- --port 8080    on another port (default: 4173, or the next free one)
//   npm start -- --check        serve, fetch every file of the page and its WASM, stop; exit code 0 when all is right
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { join, relative, sep } from 'node:path';
import { pathToFileURL } from 'node:url';
import { SetupError, run, runMain, say, sinceStart } from '../../cpp/toolchain/log.mjs';
import { ensureNodeModules } from '../../cpp/toolchain/node-modules.mjs';
import { ROOT } from '../../cpp/toolchain/paths.mjs';
import { DEMO, buildDemo, vitePath } from './build.mjs';

const USAGE = 'usage: npm start [-- [--check] [--port N]]';

function parseArguments(args) {
  const options = { check: false, port: 4173, strictPort: false };
  for (let i = 0; i < args.length; ++i) {
    if (args[i] === '--check') {
      options.check = true;
    } else if (args[i] === '--port') {
      const port = Number(args[++i]);
      if (!Number.isInteger(port) || port < 1 || port > 65535) {
        throw new SetupError(`--port is ${args[i]}, wanted a whole number from 1 to 65535`, USAGE);
      }
      Object.assign(options, { port, strictPort: true });
    } else {
      throw new SetupError(`unknown argument ${args[i]}`, USAGE);
    }
  }
  return options;
}

async function buildPackage() {
  // It prints its own progress: the WASM modules take the time.
  await run(process.execPath, [join(ROOT, 'web/build.mjs')], {
    cwd: ROOT, title: 'web/build.mjs', quiet: false, cure: 'mend the error above and run again',
  });
}

async function serve({ port, strictPort }) {
  const { preview } = await import(pathToFileURL(join(vitePath(), 'dist/node/index.js')).href);
  try {
    return await preview({ root: DEMO, logLevel: 'warn', preview: { port, strictPort, open: false } });
  } catch (error) {
    throw new SetupError(`cannot serve the demo on port ${port}: ${error.message}`,
      'choose another port: npm start -- --port N');
  }
}

/** Fetches a file of the page and says what is wrong with the answer. */
async function fetchFile(url, wantedType) {
  const response = await fetch(url);
  const bytes = new Uint8Array(await response.arrayBuffer());
  const type = response.headers.get('content-type') ?? 'no content type';
  if (response.status !== 200) throw new SetupError(`${url} answered ${response.status}`, 'read the server log above');
  if (!type.startsWith(wantedType)) {
    throw new SetupError(`${url} is served as ${type}, wanted ${wantedType}`, 'is the file in web/demo/dist?');
  }
  return bytes;
}

const TYPES = { html: 'text/html', js: 'text/javascript', css: 'text/css', json: 'application/json',
  wasm: 'application/wasm' };

/** Fetches the page and every file of the build; every .wasm must be real, and named by some script. */
async function check(base) {
  const dist = join(DEMO, 'dist');
  const page = new TextDecoder().decode(await fetchFile(base, 'text/html'));
  const scripts = [...page.matchAll(/<script[^>]*\bsrc="([^"]+)"/g)].map(([, src]) => new URL(src, base).href);
  if (scripts.length === 0) throw new SetupError('the page names no script', 'look at web/demo/dist/index.html');
  const files = readdirSync(dist, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && !entry.name.startsWith('.'))
    .map((entry) => relative(dist, join(entry.parentPath ?? entry.path, entry.name)).split(sep).join('/'));
  const fetched = new Map();
  for (const file of files) {
    const type = TYPES[file.split('.').pop()] ?? '';
    const url = new URL(file, base).href;
    fetched.set(url, await fetchFile(url, type));
  }
  for (const script of scripts) {
    if (!fetched.has(script)) throw new SetupError(`the page names ${script}, which is not in the build`, 'rebuild');
  }
  const code = [...fetched].filter(([url]) => url.endsWith('.js')).map(([, bytes]) => new TextDecoder().decode(bytes));
  const namesIn = (pattern) => new Set(code.flatMap((text) => [...text.matchAll(pattern)].map(([, name]) => name)));
  const named = namesIn(/([\w.-]+\.wasm)\b/g);
  // With a path, or given to URL(): what the page would really ask for.
  const asked = namesIn(/(?:\/|new URL\(["'`])([\w.-]+\.wasm)\b/g);
  const wasm = [...fetched].filter(([url]) => url.endsWith('.wasm'));
  if (wasm.length === 0) throw new SetupError('the build holds no .wasm', 'look at web/demo/dist');
  for (const [url, bytes] of wasm) {
    if (bytes.length < 8 || bytes[0] !== 0 || bytes[1] !== 0x61 || bytes[2] !== 0x73 || bytes[3] !== 0x6d) {
      throw new SetupError(`${url} does not begin with the WASM magic bytes`, 'delete build/ and run again');
    }
    if (!named.has(url.split('/').pop())) throw new SetupError(`no script names ${url}`, 'delete web/demo/dist');
    say('check', `${url}: ${bytes.length} bytes, application/wasm`);
  }
  const names = new Set(wasm.map(([url]) => url.split('/').pop()));
  for (const name of asked) {
    if (!names.has(name)) throw new SetupError(`a script names ${name}, which is not served`, 'rebuild the demo');
  }
  say('check', `the page, ${files.length} files and ${wasm.length} WASM modules are served right`);
}

await runMain(async () => {
  const options = parseArguments(process.argv.slice(2));
  if (!existsSync(join(DEMO, 'package.json'))) throw new SetupError('web/demo is incomplete', 'restore it from git');
  await ensureNodeModules();
  await buildPackage();
  await buildDemo();
  const server = await serve(options);
  const address = server.resolvedUrls?.local[0] ?? `http://localhost:${server.config.preview.port}/`;
  if (!options.check) {
    say('start', `Headwise demo: ${address}  (ready after ${sinceStart()}; Ctrl-C ends it)`);
    return;
  }
  try {
    await check(address);
    const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
    say('start', `headwise ${version} checked after ${sinceStart()}`);
  } finally {
    await new Promise((resolve) => {
      server.httpServer.close(resolve);
      server.httpServer.closeAllConnections?.();
    });
  }
});
