// load(): what it takes, how it falls back, and what it says when something else comes than a .wasm.
import { readFileSync } from 'node:fs';
import { type IncomingMessage, type Server, type ServerResponse, createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
import {
  HeadwiseLoadError,
  HeadwiseRangeError,
  HeadwiseTypeError,
  Linear,
  MultiHeadAttention,
  detectFeatures,
  isHeadwiseError,
  load,
  version,
} from 'headwise';
import { relaxedSimd, simd, threads } from 'wasm-feature-detect';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { type ExpectedError, Random, checkError, expectRejection, expectSameBits, zeros } from './helpers.js';

const wasmFolder = new URL('../../web/dist/wasm/', import.meta.url);
const bytesOf = (variant: string): Buffer => readFileSync(new URL(`headwise.${variant}.wasm`, wasmFolder));
const simdBytes = bytesOf('simd');
const packageVersion = (
  JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as { version: string }
).version;

let server: Server;
let base: string;
const served = new Map<string, number>();
let handler: (path: string, response: ServerResponse, request: IncomingMessage) => void;

const send = (response: ServerResponse, status: number, type: string, body: Uint8Array | string): void => {
  response.writeHead(status, { 'content-type': type }).end(body);
};
const serveWasm = (_path: string, response: ServerResponse): void => send(response, 200, 'application/wasm', simdBytes);

beforeAll(async () => {
  server = createServer((request, response) => {
    const path = request.url ?? '';
    served.set(path, (served.get(path) ?? 0) + 1);
    handler(path, response, request);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterAll(() => server.close());
afterEach(() => vi.restoreAllMocks());

const LOAD = { type: HeadwiseLoadError, call: 'load()' } as const;

test('features are those wasm-feature-detect finds', async () => {
  expect(detectFeatures()).toEqual({ simd: await simd(), relaxedSimd: await relaxedSimd(), threads: await threads() });
});

test('the report says what runs and why', async () => {
  const runtime = await load();
  const report = runtime.report();
  const relaxed = detectFeatures().relaxedSimd;
  expect(report).toMatchObject({
    version: packageVersion,
    variant: relaxed ? 'relaxed' : 'simd',
    simdTarget: relaxed ? 'WASM+relaxed' : 'WASM',
    threads: 1,
    features: detectFeatures(),
  });
  expect(version).toBe(packageVersion);
  expect(report.heapBytes).toBe(runtime.heapBytes);
  expect(report.heapBytes).toBeGreaterThan(1e6);
  expect(fileURLToPath(report.source)).toContain(`headwise.${report.variant}.wasm`);
  expect(report.notUsed.map(({ variant }) => variant)).toEqual(
    relaxed ? ['relaxed-threads'] : ['relaxed-threads', 'relaxed'],
  );
});

test('the relaxed build is refused with its reason where the engine has no relaxed SIMD', async () => {
  if (detectFeatures().relaxedSimd) {
    expect((await load({ variant: 'relaxed' })).variant).toBe('relaxed');
    return;
  }
  await expectRejection(load({ variant: 'relaxed' }), {
    ...LOAD,
    code: 'unsupported',
    argument: 'variant',
    got: "'relaxed'",
    wanted: "it must be 'simd' or 'auto'",
  });
});

describe('memoised', () => {
  test('cold and at once: one download, one runtime (known failure A-13)', async () => {
    handler = (path, response) => void setTimeout(() => serveWasm(path, response), 50);
    const wasmUrl = `${base}/once.wasm`;
    const make = (): Promise<MultiHeadAttention> =>
      MultiHeadAttention.create({ embedDim: 4, numHeads: 4 }, { wasmUrl });
    const [a, b, c, runtime] = await Promise.all([make(), make(), make(), load({ wasmUrl })]);
    for (const mha of [a, b, c]) expect(mha.forward(zeros(1, 4)).output.shape).toEqual([1, 4]);
    expect(served.get('/once.wasm')).toBe(1);
    expect(await load({ wasmUrl: new URL(wasmUrl) })).toBe(runtime);
    expect(await load({ wasmUrl, threads: 1, variant: 'auto' })).toBe(runtime);
    // The build that 'auto' took, asked for by its name; and the other way round.
    expect(await load({ wasmUrl, variant: 'simd' })).toBe(runtime);
    const named = await load({ wasmUrl: `${base}/named.wasm`, variant: 'simd' });
    const best = detectFeatures().relaxedSimd ? 'relaxed' : 'simd';
    if (best === 'simd') expect(await load({ wasmUrl: `${base}/named.wasm` })).toBe(named);
    expect(served.get('/once.wasm')).toBe(1);
  });

  test('a load that failed may be tried again', async () => {
    const wasmUrl = `${base}/later.wasm`;
    handler = (_path, response) => send(response, 503, 'text/plain', 'soon');
    await expect(Promise.all([load({ wasmUrl }), load({ wasmUrl })])).rejects.toThrow('status 503');
    expect(served.get('/later.wasm')).toBe(1);
    handler = serveWasm;
    expect((await load({ wasmUrl })).simdTarget).toBe('WASM');
  });

  test('after dispose() a new one is made', async () => {
    handler = serveWasm;
    const wasmUrl = `${base}/again.wasm`;
    const first = await load({ wasmUrl });
    first.dispose();
    const second = await load({ wasmUrl });
    expect(second).not.toBe(first);
    expect([first.disposed, second.disposed]).toEqual([true, false]);
  });
});

describe('where the .wasm comes from', () => {
  const works = async (options: Parameters<typeof load>[0], source: string): Promise<void> => {
    const runtime = await load(options);
    expect(runtime.report().source).toBe(source);
    const mha = new MultiHeadAttention({ embedDim: 4, numHeads: 4, runtime });
    const x = new Random(1).tensor(3, 4);
    expectSameBits(mha.forward(x).output.data, (await reference()).forward(x).output.data);
  };
  const reference = async (): Promise<MultiHeadAttention> =>
    new MultiHeadAttention({ embedDim: 4, numHeads: 4, runtime: await load({ variant: 'simd' }) });

  test('a file, with any content type that is not HTML', async () => {
    handler = (_path, response) => send(response, 200, 'application/octet-stream', simdBytes);
    await works({ wasmUrl: `${base}/plain.bin` }, `${base}/plain.bin`);
  });
  test('a folder', async () => {
    handler = (path, response) => {
      const name = /\/deep\/headwise\.(simd|relaxed)\.wasm\?v=1$/.exec(path)?.[1];
      if (name) send(response, 200, 'application/wasm', bytesOf(name));
      else send(response, 404, 'text/plain', 'no');
    };
    await works({ wasmUrl: `${base}/deep/?v=1`, variant: 'simd' }, `${base}/deep/headwise.simd.wasm?v=1`);
  });
  test('a path in Node, absolute or relative to the working directory', async () => {
    await works(
      { wasmUrl: fileURLToPath(new URL('headwise.simd.wasm', wasmFolder)) },
      new URL('headwise.simd.wasm', wasmFolder).href,
    );
    await works({ wasmUrl: 'web/dist/wasm/', variant: 'simd' }, new URL('headwise.simd.wasm', wasmFolder).href);
  });
  test('bytes and modules', async () => {
    await works({ wasmBinary: new Uint8Array(simdBytes) }, 'wasmBinary');
    const buffer = simdBytes.buffer.slice(simdBytes.byteOffset, simdBytes.byteOffset + simdBytes.byteLength);
    await works({ wasmBinary: buffer as ArrayBuffer }, 'wasmBinary');
    await works({ wasmModule: await WebAssembly.compile(simdBytes as Uint8Array<ArrayBuffer>) }, 'wasmModule');
  });
});

describe('falling back', () => {
  test('auto takes simd when the better build is not there, and says why', async () => {
    // Where the engine has relaxed SIMD only behind a flag, pretend; the simd build runs anyway.
    const real = WebAssembly.validate.bind(WebAssembly);
    vi.spyOn(WebAssembly, 'validate').mockImplementation((bytes) => {
      const list = new Uint8Array(bytes as ArrayBuffer);
      return list.includes(0x85) || real(bytes);
    });
    handler = (path, response) => {
      if (path.includes('relaxed')) send(response, 404, 'text/plain', 'no');
      else serveWasm(path, response);
    };
    const runtime = await load({ wasmUrl: `${base}/half/` });
    expect(runtime.variant).toBe('simd');
    const why = runtime.report().notUsed.find(({ variant }) => variant === 'relaxed')!.reason;
    expect(why).toContain('status 404');
    // Asked for by name, it is an error.
    await expect(load({ wasmUrl: `${base}/half/`, variant: 'relaxed' })).rejects.toThrow('status 404');
    // And when nothing is there, the error tells both.
    handler = (_path, response) => send(response, 404, 'text/plain', 'no');
    await expect(load({ wasmUrl: `${base}/none/` })).rejects.toThrow(
      /simd\.wasm answered status 404.*relaxed\.wasm answered/,
    );
  });
});

describe('what is no .wasm', () => {
  const cases: [
    name: string,
    respond: (response: ServerResponse) => void,
    code: string,
    got: string,
    wanted: string,
  ][] = [
    [
      'a 404',
      (r) => send(r, 404, 'text/plain', 'no'),
      'fetch',
      'answered status 404 with text/plain',
      'a .wasm was wanted',
    ],
    [
      'a page of HTML',
      (r) => send(r, 200, 'text/html; charset=utf-8', '<!doctype html>'),
      'fetch',
      'status 200 with a page of HTML',
      'a .wasm was wanted',
    ],
    [
      'HTML that says it is bytes',
      (r) => send(r, 200, 'application/octet-stream', '<!doctype html>'),
      'fetch',
      'begin with "<!doctype html>"',
      'a .wasm was wanted',
    ],
    ['nothing', (r) => send(r, 200, 'application/octet-stream', ''), 'fetch', 'holds 0 bytes', 'a .wasm was wanted'],
    [
      'a cut .wasm',
      (r) => send(r, 200, 'application/wasm', simdBytes.subarray(0, 5000)),
      'compile',
      'the engine refused',
      'was wanted',
    ],
    [
      'a cut .wasm, not streamed',
      (r) => send(r, 200, 'application/x', simdBytes.subarray(0, 5000)),
      'compile',
      'the engine refused',
      'was wanted',
    ],
    [
      'another .wasm',
      (r) => send(r, 200, 'application/wasm', Uint8Array.of(0, 97, 115, 109, 1, 0, 0, 0)),
      'instantiate',
      'none of this package',
      `version ${packageVersion} was wanted`,
    ],
    [
      'a connection that breaks',
      (r) => r.writeHead(200, { 'content-type': 'x/y', 'content-length': '10' }).socket?.destroy(),
      'fetch',
      '/broken',
      'pass wasmUrl',
    ],
  ];
  test.each(cases)('%s', async (name, respond, code, got, wanted) => {
    handler = (_path, response) => respond(response);
    const wasmUrl = `${base}/broken-${encodeURIComponent(name)}`;
    await expectRejection(load({ wasmUrl }), { ...LOAD, code, argument: wasmUrl, got, wanted });
    // The error changed nothing: the same address loads once the right file is there.
    handler = serveWasm;
    expect((await load({ wasmUrl })).variant).toBe('simd');
  });

  test('a file that is not there', async () => {
    await expectRejection(load({ wasmUrl: new URL('nowhere.wasm', wasmFolder) }), {
      ...LOAD,
      code: 'fetch',
      argument: 'nowhere.wasm',
      got: 'ENOENT',
      wanted: 'a .wasm was wanted',
    });
  });
  test('a .wasm of another version, as caches keep it', async () => {
    await expectRejection(load({ wasmBinary: ofAnotherVersion() }), {
      ...LOAD,
      code: 'mismatch',
      argument: 'wasmBinary',
      got: 'is of version 9',
      wanted: `version ${packageVersion}`,
    });
  });
  test('the build that was not asked for', async () => {
    vi.spyOn(WebAssembly, 'validate').mockReturnValue(true);
    await expectRejection(load({ variant: 'relaxed', wasmBinary: new Uint8Array(simdBytes) }), {
      ...LOAD,
      code: 'mismatch',
      argument: 'wasmBinary',
      got: "the build 'simd'",
      wanted: "must be 'relaxed'",
    });
  });
  test('a server that cannot be reached', async () => {
    await expectRejection(load({ wasmUrl: 'http://127.0.0.1:1/x.wasm' }), {
      ...LOAD,
      code: 'fetch',
      argument: 'http://127.0.0.1:1/x.wasm',
      got: 'failed',
      wanted: 'a .wasm was wanted',
    });
  });
});

/** The simd build with its version text changed. */
function ofAnotherVersion(): Uint8Array {
  const bytes = new Uint8Array(simdBytes);
  const text = new TextEncoder().encode(`${packageVersion}\0`);
  let changed = 0;
  for (let i = 0; i + text.length <= bytes.length; ++i) {
    if (text.every((byte, k) => bytes[i + k] === byte)) {
      bytes[i] = 0x39;
      changed += 1;
    }
  }
  expect(changed).toBeGreaterThan(0);
  return bytes;
}

describe('aborting', () => {
  test('before, and while it waits; others wait on', async () => {
    await expectRejection(load({ signal: AbortSignal.abort() }), {
      ...LOAD,
      code: 'aborted',
      argument: 'signal',
      got: 'aborted',
      wanted: 'stay unaborted',
    });
    let release = (): void => {};
    handler = (path, response) => {
      release = () => serveWasm(path, response);
    };
    const wasmUrl = `${base}/slow.wasm`;
    const controller = new AbortController();
    const impatient = load({ wasmUrl, signal: controller.signal });
    const patient = load({ wasmUrl });
    await vi.waitFor(() => expect(served.get('/slow.wasm')).toBe(1));
    controller.abort();
    await expect(impatient).rejects.toMatchObject({ code: 'aborted' });
    release();
    expect((await patient).variant).toBe('simd');
    expect(served.get('/slow.wasm')).toBe(1);
  });
  test('when nobody waits any more, the download stops', async () => {
    const wasmUrl = `${base}/stopped.wasm`;
    let closed = false;
    handler = (_path, response) => void response.on('close', () => (closed = true));
    const controller = new AbortController();
    const waiting = load({ wasmUrl, signal: controller.signal });
    await vi.waitFor(() => expect(served.get('/stopped.wasm')).toBe(1));
    controller.abort();
    await expect(waiting).rejects.toMatchObject({ code: 'aborted' });
    await vi.waitFor(() => expect(closed).toBe(true));
    handler = serveWasm;
    expect((await load({ wasmUrl })).variant).toBe('simd');
  });
});

test('an engine without SIMD', async () => {
  vi.spyOn(WebAssembly, 'validate').mockReturnValue(false);
  await expectRejection(load({ wasmUrl: `${base}/never.wasm` }), {
    ...LOAD,
    code: 'no-simd',
    argument: 'this engine',
    got: 'no WebAssembly SIMD',
    wanted: 'Safari 16.4',
  });
  expect(served.has('/never.wasm')).toBe(false);
});

describe('bad options', () => {
  const TYPE = { type: HeadwiseTypeError, code: 'wrong-type', call: 'load()' } as const;
  const RANGE = { type: HeadwiseRangeError, code: 'out-of-range', call: 'load()' } as const;
  test.each<[string, unknown, ExpectedError]>([
    ['null', null, { ...TYPE, argument: 'options', got: 'null', wanted: 'an object' }],
    ['text', './x.wasm', { ...TYPE, argument: 'options', got: '"./x.wasm"', wanted: 'an object' }],
    [
      'an unknown name',
      { url: 'x' },
      { ...TYPE, code: 'unknown-option', argument: '"url"', got: 'unknown', wanted: 'wasmUrl' },
    ],
    [
      'an unknown variant',
      { variant: 'fast' },
      { ...RANGE, argument: 'variant', got: '"fast"', wanted: "'auto', 'simd' or 'relaxed'" },
    ],
    ['4 threads', { threads: 4 }, { ...RANGE, argument: 'threads', got: '4', wanted: 'must be 1' }],
    ['0 threads', { threads: 0 }, { ...RANGE, argument: 'threads', got: '0', wanted: 'must be 1' }],
    ['threads: auto', { threads: 'auto' }, { ...RANGE, argument: 'threads', got: '"auto"', wanted: 'must be 1' }],
    ['threads: null', { threads: null }, { ...TYPE, argument: 'threads', got: 'null', wanted: 'must be 1' }],
    ['a wasmUrl of a number', { wasmUrl: 5 }, { ...TYPE, argument: 'wasmUrl', got: '5', wanted: 'a string or a URL' }],
    [
      'a wasmModule of bytes',
      { wasmModule: new Uint8Array(8) },
      { ...TYPE, argument: 'wasmModule', got: 'Uint8Array of 8', wanted: 'a WebAssembly.Module' },
    ],
    [
      'a wasmBinary of text',
      { wasmBinary: 'AGFzbQ' },
      { ...TYPE, argument: 'wasmBinary', got: '"AGFzbQ"', wanted: 'an ArrayBuffer or a Uint8Array' },
    ],
    [
      'two sources',
      { wasmUrl: 'x', wasmBinary: new Uint8Array(8) },
      { ...TYPE, code: 'conflict', argument: 'wasmUrl and wasmBinary', got: 'given together', wanted: 'one at a time' },
    ],
    [
      'a signal of something else',
      { signal: {} },
      { ...TYPE, argument: 'signal', got: 'an object', wanted: 'an AbortSignal' },
    ],
  ])('%s', async (_name, options, expected) => {
    await expectRejection(load(options as never), expected);
    expect((await load()).disposed).toBe(false);
  });
});

test('create() takes a runtime or load options, not both', async () => {
  const runtime = await load();
  for (const [make, call] of [
    [() => MultiHeadAttention.create({ embedDim: 4, numHeads: 4, runtime }, {}), 'MultiHeadAttention.create()'],
    [() => Linear.create({ inFeatures: 4, outFeatures: 4, runtime }, {}), 'Linear.create()'],
  ] as const) {
    await expectRejection(make(), {
      type: HeadwiseTypeError,
      code: 'conflict',
      call,
      argument: 'loadOptions',
      got: 'together with a runtime',
      wanted: 'left away',
    });
  }
  expect((await Linear.create({ inFeatures: 4, outFeatures: 3 }, { variant: 'simd' })).forward(zeros(4)).shape).toEqual(
    [3],
  );
  expect((await Linear.create({ inFeatures: 4, outFeatures: 3, runtime })).disposed).toBe(false);
});

test('isHeadwiseError() knows all of them, and nothing else', async () => {
  const caught = await load({ threads: 2 as 1 }).catch((error: unknown) => error);
  expect(isHeadwiseError(caught) && caught.code).toBe('out-of-range');
  expect(isHeadwiseError(await load({ signal: AbortSignal.abort() }).catch((error: unknown) => error))).toBe(true);
  expect(isHeadwiseError(new RangeError('other'))).toBe(false);
  checkError(caught, {
    type: RangeError,
    code: 'out-of-range',
    call: 'load()',
    argument: 'threads',
    got: '2',
    wanted: '1',
  });
});
