// Short human lines, one style for every set-up and build script, and a runner for child processes that shows
// progress on what takes long and keeps the end of the output for the error message.
import { spawn } from 'node:child_process';

const start = Date.now();

/** Prints one line: what is done, and why when it is not obvious. */
export function say(topic, text) {
  process.stdout.write(`[${topic}] ${text}\n`);
}

export function seconds(since) {
  const s = (Date.now() - since) / 1000;
  return s < 10 ? `${s.toFixed(1)} s` : `${Math.round(s)} s`;
}

export const sinceStart = () => seconds(start);

/** A failure the user can act on. Printed as two lines, without a stack. */
export class SetupError extends Error {
  constructor(cause, cure) {
    super(`${cause}\n  cure: ${cure}`);
    this.name = 'SetupError';
  }
}

/** Runs main() and turns failures into an exit code; only unexpected ones show a stack. */
export async function runMain(main) {
  try {
    process.exitCode = (await main()) ?? process.exitCode ?? 0;
  } catch (error) {
    if (error instanceof SetupError) console.error(`error: ${error.message}`);
    else console.error(error);
    process.exitCode = 1;
  }
}

/**
 * Runs a program and resolves to { status, stdout, tail }.
 * - quiet (default): nothing is shown but a progress line every few seconds; `progress(line)` may turn an output
 *   line into a short text. Otherwise the output goes straight to the terminal.
 * - A non-zero status rejects with a SetupError that carries the last lines and `cure`, unless `allowFailure`.
 */
export function run(command, args, options = {}) {
  const {
    cwd, env, topic = 'run', title = command, quiet = true, cure, allowFailure = false, progress, input,
    timeoutMs = 0,
  } = options;
  return new Promise((resolve, reject) => {
    const begun = Date.now();
    const child = spawn(command, args, {
      cwd,
      env: { ...process.env, ...env },
      stdio: [input === undefined ? 'ignore' : 'pipe', quiet ? 'pipe' : 'inherit', quiet ? 'pipe' : 'inherit'],
    });
    let stdout = '';
    const tail = [];
    let note = '';
    let shown = '';
    const keep = (chunk) => {
      for (const line of chunk.split(/[\r\n]+/)) {
        if (!line.trim()) continue;
        tail.push(line);
        if (tail.length > 40) tail.shift();
        note = progress?.(line) ?? note;
      }
    };
    child.stdout?.setEncoding('utf8').on('data', (chunk) => {
      stdout += chunk;
      keep(chunk);
    });
    child.stderr?.setEncoding('utf8').on('data', keep);
    if (input !== undefined) child.stdin.end(input);
    const ticker = setInterval(() => {
      const line = `${title}: ${note || 'still running'} (${seconds(begun)})`;
      if (quiet && line !== shown) say(topic, line);
      shown = line;
    }, 10_000);
    const killer = timeoutMs ? setTimeout(() => child.kill('SIGKILL'), timeoutMs) : undefined;
    const done = () => {
      clearInterval(ticker);
      clearTimeout(killer);
    };
    child.on('error', (error) => {
      done();
      if (allowFailure) resolve({ status: 127, stdout, tail: String(error.message) });
      else reject(new SetupError(`cannot start ${command}: ${error.message}`, cure ?? `install ${command}`));
    });
    child.on('close', (code, signal) => {
      done();
      const status = code ?? 128;
      const text = tail.join('\n');
      if (status === 0 || allowFailure) {
        resolve({ status, stdout, tail: text });
        return;
      }
      const how = signal ? `was ended by ${signal}` : `failed with exit code ${status}`;
      reject(new SetupError(
        `${title} ${how}${text ? `; its last lines:\n${text.replace(/^/gm, '    ')}` : ''}`,
        cure ?? `run it by hand to see more: ${command} ${args.join(' ')}`));
    });
  });
}
