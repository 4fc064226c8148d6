// Gets and compiles a .wasm: streaming where the server says application/wasm, from bytes otherwise. When something
// else comes, the error says what: a 404, or the index.html that single-page servers send for every address.
import { describe } from './describe.js';
import { HeadwiseLoadError } from './errors.js';
import { localFiles } from './platform.js';

const WAY_OUT = 'check that the .wasm files of the package are served there, or pass wasmUrl';
const CSP_HINT = "under a Content-Security-Policy, script-src needs 'wasm-unsafe-eval'";

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

export async function compileFrom(url: URL, signal: AbortSignal): Promise<WebAssembly.Module> {
  if (url.protocol === 'file:') return compileBytes(await readLocal(url), url.href);
  let response: Response;
  try {
    response = await fetch(url, { signal, credentials: 'same-origin' });
  } catch (error) {
    if (signal.aborted) throw aborted(signal);
    throw new HeadwiseLoadError(
      'fetch',
      `load(): fetching ${url.href} failed: ${messageOf(error)}; a .wasm was wanted; ${WAY_OUT}`,
      { cause: error },
    );
  }
  const type = (response.headers.get('content-type') ?? '').split(';', 1)[0]?.trim().toLowerCase() ?? '';
  if (!response.ok) {
    throw new HeadwiseLoadError(
      'fetch',
      `load(): ${url.href} answered status ${response.status}${type ? ` with ${type}` : ''}; a .wasm was wanted; ${WAY_OUT}`,
    );
  }
  if (type === 'text/html') {
    throw new HeadwiseLoadError(
      'fetch',
      `load(): ${url.href} answered status ${response.status} with a page of HTML (${type}); a .wasm was wanted; ${WAY_OUT}`,
    );
  }
  if (type === 'application/wasm' && typeof WebAssembly.compileStreaming === 'function') {
    try {
      return await WebAssembly.compileStreaming(response);
    } catch (error) {
      throw signal.aborted ? aborted(signal) : refused(url.href, error);
    }
  }
  let bytes: ArrayBuffer;
  try {
    bytes = await response.arrayBuffer();
  } catch (error) {
    if (signal.aborted) throw aborted(signal);
    throw new HeadwiseLoadError('fetch', `load(): reading ${url.href} broke off: ${messageOf(error)}; ${WAY_OUT}`, {
      cause: error,
    });
  }
  return compileBytes(new Uint8Array(bytes), url.href, type);
}

async function readLocal(url: URL): Promise<Uint8Array> {
  const files = localFiles();
  if (files === undefined) {
    throw new HeadwiseLoadError(
      'fetch',
      `load(): ${url.href} is a local file, which this build for browsers cannot read; a web address was wanted; serve` +
        ' the page over http, or pass wasmBinary; in Node import the package by its name "headwise"',
    );
  }
  try {
    return await files.read(url);
  } catch (error) {
    throw new HeadwiseLoadError(
      'fetch',
      `load(): reading ${url.href} failed: ${messageOf(error)}; a .wasm was wanted; ${WAY_OUT}`,
      { cause: error },
    );
  }
}

/** Compiles bytes after a look at the first four, which name a .wasm. */
export async function compileBytes(bytes: Uint8Array, source: string, type = ''): Promise<WebAssembly.Module> {
  if (bytes[0] !== 0 || bytes[1] !== 0x61 || bytes[2] !== 0x73 || bytes[3] !== 0x6d) {
    const begin = String.fromCharCode(...bytes.subarray(0, 20));
    throw new HeadwiseLoadError(
      'fetch',
      `load(): ${source} holds ${bytes.length} bytes${type ? ` of ${type}` : ''} that begin with ${describe(begin)};` +
        ` a .wasm was wanted; ${WAY_OUT}`,
    );
  }
  try {
    return await WebAssembly.compile(bytes as Uint8Array<ArrayBuffer>);
  } catch (error) {
    throw refused(source, error);
  }
}

const refused = (source: string, error: unknown): HeadwiseLoadError =>
  new HeadwiseLoadError(
    'compile',
    `load(): the engine refused ${source}: ${messageOf(error)}; a whole .wasm it can run was wanted; try variant:` +
      ` 'simd'; ${CSP_HINT}`,
    { cause: error },
  );

export function aborted(signal: AbortSignal): HeadwiseLoadError {
  return new HeadwiseLoadError(
    'aborted',
    'load(): signal was aborted; it must stay unaborted until the module is loaded; call load() again to try again',
    { cause: signal.reason },
  );
}
