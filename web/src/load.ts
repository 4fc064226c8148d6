// load(): probe, choose a build, fetch, compile, start. Memoised: whoever asks for the same thing gets the same
// runtime, and a load that failed is forgotten, so that it can be tried again.
import { checkChoice, checkOptions } from './arguments.js';
import { packagedWasmUrl } from './asset-urls.js';
import { Core } from './core.js';
import { describe } from './describe.js';
import { HeadwiseLoadError, rangeError, typeError } from './errors.js';
import { type Features, detectFeatures } from './features.js';
import createModule from './glue.js';
import { localFiles } from './platform.js';
import { type RawModule, expectedSlotNames } from './raw.js';
import { Runtime, type RuntimeReport, type Variant } from './runtime.js';
import { VERSION } from './version.js';
import { aborted, compileBytes, compileFrom } from './wasm-source.js';

/** WebAssembly.Module where TypeScript knows it: projects without the DOM's types do not. */
export type CompiledModule = typeof globalThis extends { WebAssembly: { Module: { prototype: infer M } } } ? M : object;

export interface LoadOptions {
  /**
   * Which build: 'simd' runs everywhere and is bit-reproducible; 'relaxed' has fused multiply-add. 'auto', the
   * default, takes the best the engine can run and falls back to the next.
   */
  readonly variant?: Variant | 'auto' | undefined;
  /** This version has one thread: 1. */
  readonly threads?: 1 | undefined;
  /**
   * Where the .wasm is, when not beside the package's files. With a slash at the end it is a folder that holds
   * headwise.simd.wasm and headwise.relaxed.wasm; otherwise it is one file, whichever build that is.
   */
  readonly wasmUrl?: string | URL | undefined;
  /** A module compiled elsewhere, for runtimes that forbid compiling at run time. */
  readonly wasmModule?: CompiledModule | undefined;
  /** The bytes of a .wasm, for where nothing can be fetched. */
  readonly wasmBinary?: ArrayBuffer | Uint8Array | undefined;
  /** Stops waiting; the download stops when nobody waits any more. */
  readonly signal?: AbortSignal | undefined;
}

const CALL = 'load()';
const KNOWN: ReadonlySet<string> = new Set([
  'variant',
  'threads',
  'wasmUrl',
  'wasmModule',
  'wasmBinary',
  'signal',
] satisfies (keyof LoadOptions)[]);

/** A build to try. `variant` is undefined where a single file was named: it says itself what it is. */
interface Candidate {
  readonly variant: Variant | undefined;
  readonly source: string;
  compile(signal: AbortSignal): Promise<WebAssembly.Module>;
}

interface Job {
  readonly promise: Promise<Runtime>;
  readonly controller: AbortController;
  waiting: number;
  runtime?: Runtime;
}

const jobs = new Map<string, Job>();
const objectIds = new WeakMap<object, number>();
let lastObjectId = 0;

/** Two objects, two keys; the same object, the same key. */
function objectKey(value: object): string {
  const id = objectIds.get(value) ?? ++lastObjectId;
  objectIds.set(value, id);
  return `object ${id}`;
}

/**
 * Loads the WASM module. Calls for the same build share one download and one runtime. Rejects with
 * HeadwiseLoadError, whose `code` says why.
 */
export async function load(options?: LoadOptions): Promise<Runtime> {
  const o = checkOptions<LoadOptions>(CALL, options, KNOWN);
  const variant =
    o.variant === undefined ? 'auto' : checkChoice(CALL, 'variant', o.variant, ['auto', 'simd', 'relaxed'] as const);
  checkThreads(o.threads);
  checkSignal(o.signal);
  if (o.signal?.aborted) throw aborted(o.signal);
  const { key, make } = chooseSource(o);
  const jobKey = `${variant} ${key}`;
  const job =
    liveJob(jobKey) ??
    (variant === 'auto' ? finishedJob(`${bestVariant()} ${key}`) : undefined) ??
    startJob(jobKey, (signal) => loadBest(variant, make, signal), key);
  return waitFor(job, jobKey, o.signal);
}

/**
 * The runtime a create() was given, or the one it asks load() for.
 * @internal
 */
export async function runtimeOf(call: string, given: Runtime | undefined, options?: LoadOptions): Promise<Runtime> {
  if (given === undefined) return load(options);
  if (options === undefined) return given;
  throw typeError(
    {
      call,
      argument: 'loadOptions',
      got: 'given together with a runtime',
      wanted: 'left away then',
      wayOut: 'a runtime is loaded already; drop one of the two',
    },
    'conflict',
  );
}

const bestVariant = (): Variant => (detectFeatures().relaxedSimd ? 'relaxed' : 'simd');

function liveJob(key: string): Job | undefined {
  const job = jobs.get(key);
  return job?.runtime?.disposed ? undefined : job;
}

/** One that has not failed and cannot any more. */
function finishedJob(key: string): Job | undefined {
  const job = liveJob(key);
  return job?.runtime === undefined ? undefined : job;
}

function startJob(key: string, run: (signal: AbortSignal) => Promise<Runtime>, sourceKey: string): Job {
  const controller = new AbortController();
  const job: Job = { promise: run(controller.signal), controller, waiting: 0 };
  job.promise.then(
    (runtime) => {
      job.runtime = runtime;
      // Whoever asks for this build by its name gets what 'auto' chose.
      const named = `${runtime.variant} ${sourceKey}`;
      if (liveJob(named) === undefined) jobs.set(named, job);
    },
    () => {
      if (jobs.get(key) === job) jobs.delete(key);
    },
  );
  jobs.set(key, job);
  return job;
}

function waitFor(job: Job, key: string, signal: AbortSignal | undefined): Promise<Runtime> {
  job.waiting += 1;
  if (signal === undefined) return job.promise;
  return new Promise((resolve, reject) => {
    const onAbort = (): void => {
      reject(aborted(signal));
      job.waiting -= 1;
      if (job.waiting > 0 || job.runtime !== undefined) return;
      if (jobs.get(key) === job) jobs.delete(key);
      job.controller.abort(signal.reason);
    };
    signal.addEventListener('abort', onAbort, { once: true });
    void job.promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort));
  });
}

function checkThreads(threads: unknown): void {
  if (threads === undefined || threads === 1) return;
  const complaint = {
    call: CALL,
    argument: 'threads',
    got: describe(threads),
    wanted: '1',
    wayOut: 'builds with threads come with a later version; leave it away',
  };
  throw typeof threads === 'number' || threads === 'auto' ? rangeError(complaint) : typeError(complaint);
}

function checkSignal(signal: unknown): void {
  if (signal === undefined) return;
  const s = signal as Partial<AbortSignal> | null;
  if (typeof s === 'object' && s !== null && typeof s.aborted === 'boolean' && s.addEventListener) return;
  throw typeError({
    call: CALL,
    argument: 'signal',
    got: describe(signal),
    wanted: 'an AbortSignal',
    wayOut: 'give new AbortController().signal',
  });
}

interface Source {
  /** What makes two loads the same. */
  readonly key: string;
  /** Candidates for one variant, or for a single file of whatever build. */
  make(variant: Variant | undefined): Candidate;
}

function chooseSource({ wasmUrl, wasmModule, wasmBinary }: LoadOptions): Source {
  const given = Object.entries({ wasmUrl, wasmModule, wasmBinary }).filter(([, value]) => value !== undefined);
  if (given.length > 1) {
    throw typeError(
      {
        call: CALL,
        argument: given.map(([name]) => name).join(' and '),
        got: 'given together',
        wanted: 'given one at a time',
        wayOut: 'keep one of them',
      },
      'conflict',
    );
  }
  if (wasmModule !== undefined) {
    if (Object.prototype.toString.call(wasmModule) !== '[object WebAssembly.Module]') {
      throw typeError({
        call: CALL,
        argument: 'wasmModule',
        got: describe(wasmModule),
        wanted: 'a WebAssembly.Module',
        wayOut: 'use WebAssembly.compile(bytes), or pass the bytes as wasmBinary',
      });
    }
    return single(objectKey(wasmModule), 'wasmModule', async () => wasmModule);
  }
  if (wasmBinary !== undefined) {
    const bytes = bytesOf(wasmBinary);
    return single(objectKey(wasmBinary), 'wasmBinary', () => compileBytes(bytes, 'wasmBinary'));
  }
  if (wasmUrl !== undefined) {
    const url = resolveUrl(wasmUrl);
    if (!url.pathname.endsWith('/')) return single(url.href, url.href, (signal) => compileFrom(url, signal));
    return folder(url.href, (variant) => new URL(`headwise.${variant}.wasm${url.search}`, url));
  }
  return folder('', packagedWasmUrl);
}

const single = (key: string, source: string, compile: Candidate['compile']): Source => ({
  key: `single ${key}`,
  make: () => ({ variant: undefined, source, compile }),
});

const folder = (key: string, urlOf: (variant: Variant) => URL): Source => ({
  key: `folder ${key}`,
  make(variant = 'simd') {
    const url = urlOf(variant);
    return { variant, source: url.href, compile: (signal) => compileFrom(url, signal) };
  },
});

function bytesOf(value: unknown): Uint8Array {
  if (value instanceof Uint8Array) return value;
  if (Object.prototype.toString.call(value) === '[object ArrayBuffer]') return new Uint8Array(value as ArrayBuffer);
  throw typeError({
    call: CALL,
    argument: 'wasmBinary',
    got: describe(value),
    wanted: 'an ArrayBuffer or a Uint8Array',
    wayOut: 'use await response.arrayBuffer()',
  });
}

function resolveUrl(value: unknown): URL {
  if (Object.prototype.toString.call(value) === '[object URL]') return value as URL;
  if (typeof value === 'string') {
    try {
      const page = globalThis as { document?: { baseURI?: string }; location?: { href?: string } };
      const base = page.document?.baseURI ?? page.location?.href;
      return localFiles()?.resolve(value) ?? new URL(value, base);
    } catch {
      throw rangeError({
        call: CALL,
        argument: 'wasmUrl',
        got: describe(value),
        wanted: 'an address',
        wayOut: 'use new URL(path, import.meta.url)',
      });
    }
  }
  throw typeError({
    call: CALL,
    argument: 'wasmUrl',
    got: describe(value),
    wanted: 'a string or a URL',
    wayOut: 'use new URL(path, import.meta.url)',
  });
}

const messageOf = (error: unknown): string => (error instanceof Error ? error.message : String(error));

async function loadBest(wanted: Variant | 'auto', make: Source['make'], signal: AbortSignal): Promise<Runtime> {
  const features = detectFeatures();
  if (!features.simd) {
    throw new HeadwiseLoadError(
      'no-simd',
      `${CALL}: this engine has no WebAssembly SIMD; 128-bit SIMD is needed; use Chrome 91, Firefox 89, Safari 16.4,` +
        ' Node 16.4 or later, and leave WebAssembly switched on',
    );
  }
  if (wanted === 'relaxed' && !features.relaxedSimd) {
    throw new HeadwiseLoadError(
      'unsupported',
      `${CALL}: variant is 'relaxed', for which this engine has no instructions; it must be 'simd' or 'auto' here; leave` +
        ' it away to get the best there is',
    );
  }
  const notUsed: { variant: string; reason: string }[] = [
    { variant: 'relaxed-threads', reason: 'builds with threads come with a later version' },
  ];
  const order: Variant[] = [];
  if (wanted === 'relaxed' || (wanted === 'auto' && features.relaxedSimd)) order.push('relaxed');
  else {
    const reason = wanted === 'simd' ? "variant: 'simd' was asked for" : 'the engine has no relaxed SIMD';
    notUsed.push({ variant: 'relaxed', reason });
  }
  if (wanted !== 'relaxed') order.push('simd');

  const failures: string[] = [];
  for (const variant of order) {
    const candidate = make(variant);
    try {
      return await start(candidate, await candidate.compile(signal), wanted, features, notUsed);
    } catch (error) {
      const last = candidate.variant === undefined || variant === order.at(-1);
      if (signal.aborted || last) throw withEarlier(error, failures);
      failures.push(`${variant}: ${messageOf(error)}`);
      notUsed.push({ variant, reason: messageOf(error) });
    }
  }
  throw new HeadwiseLoadError('unsupported', `${CALL}: no build was tried`);
}

/** The last failure, which also tells why the better build was not taken. */
function withEarlier(error: unknown, failures: readonly string[]): unknown {
  if (failures.length === 0 || !(error instanceof HeadwiseLoadError)) return error;
  const message = `${error.message} (tried before: ${failures.join('; ')})`;
  return new HeadwiseLoadError(error.code, message, { cause: error.cause });
}

async function start(
  candidate: Candidate,
  module: WebAssembly.Module,
  wanted: Variant | 'auto',
  features: Features,
  notUsed: RuntimeReport['notUsed'],
): Promise<Runtime> {
  const raw = await instantiate(module, candidate.source);
  checkSame(raw, candidate.source);
  const simdTarget = raw.simdTarget();
  const variant: Variant = simdTarget.includes('relaxed') ? 'relaxed' : 'simd';
  const expected = candidate.variant ?? (wanted === 'auto' ? undefined : wanted);
  if (expected !== undefined && expected !== variant) {
    throw new HeadwiseLoadError(
      'mismatch',
      `${CALL}: ${candidate.source} holds the build '${variant}'; it must be '${expected}'; correct variant or wasmUrl`,
    );
  }
  return new Runtime(new Core(raw), {
    version: raw.version(),
    variant,
    notUsed: notUsed.filter((better) => better.variant !== variant),
    simdTarget,
    source: candidate.source,
    features,
  });
}

/** Where exports are missing, the glue stumbles over undefined: that is another module, not a fault of the engine. */
const whyNotStarted = (error: unknown): string =>
  error instanceof TypeError
    ? `is a WebAssembly module, but none of this package (${messageOf(error)})`
    : `could not be started: ${messageOf(error)}`;

function instantiate(module: WebAssembly.Module, source: string): Promise<RawModule> {
  return new Promise((resolve, reject) => {
    const fail = (error: unknown): void => {
      reject(
        new HeadwiseLoadError(
          'instantiate',
          `${CALL}: ${source} ${whyNotStarted(error)}; the .wasm of version ${VERSION} was wanted;` +
            ' deploy the .wasm and the JavaScript of one version together, and free memory if it is short',
          { cause: error },
        ),
      );
    };
    const options = {
      instantiateWasm(imports: WebAssembly.Imports, receive: (instance: WebAssembly.Instance) => void) {
        // The glue waits for ever when this fails, so the failure takes its own way out.
        WebAssembly.instantiate(module, imports).then(receive).catch(fail);
        return {};
      },
    };
    createModule(options).then(resolve, fail);
  });
}

/** A .wasm left in a cache from another version would be called with shifted arguments: refuse it here. */
function checkSame(raw: RawModule, source: string): void {
  const version = raw.version();
  if (version === VERSION && raw.slotNames() === expectedSlotNames()) return;
  throw new HeadwiseLoadError(
    'mismatch',
    `${CALL}: ${source} is of version ${version}; it must be the .wasm of version ${VERSION}; deploy both together and` +
      ' empty caches',
  );
}
