// WebKitGTK under a display of its own, spoken to in plain WebDriver: a handful of HTTP requests.
import { spawn } from 'node:child_process';
import { createServer } from 'node:http';
import { setTimeout as pause } from 'node:timers/promises';
import { ensureWebKit } from '../browsers.mjs';

const START_MS = 30_000;

/** A program that runs until stop() is called; the end of what it said is kept for an error. */
function start(path, args, { env = {}, extraPipe = false } = {}) {
  const stdio = ['ignore', 'pipe', 'pipe', ...(extraPipe ? ['pipe'] : [])];
  const child = spawn(path, args, { stdio, env: { ...process.env, ...env } });
  const state = { child, said: '', over: undefined };
  const keep = (chunk) => {
    state.said = (state.said + chunk).slice(-2000);
  };
  child.stdout.setEncoding('utf8').on('data', keep);
  child.stderr.setEncoding('utf8').on('data', keep);
  const ended = new Promise((resolve) => {
    const over = (why) => {
      state.over ??= why;
      resolve();
    };
    child.on('error', (error) => over(error.message));
    child.on('close', (code, signal) => over(`ended with ${signal ?? `exit code ${code}`}`));
  });
  state.stop = async () => {
    if (state.over === undefined) child.kill();
    await ended;
  };
  state.failure = (what) => new Error(`${path} ${what}${state.over ? ` (${state.over})` : ''}: ${state.said}`);
  return state;
}

/** Repeats `attempt` until it gives something; `alive` fails early. */
async function until(attempt, milliseconds, program, what) {
  for (const end = Date.now() + milliseconds; Date.now() < end; await pause(50)) {
    if (program.over !== undefined) break;
    const value = await attempt();
    if (value !== undefined) return value;
  }
  throw program.failure(what);
}

/** An X server on the first free display, whose name it tells on its fourth pipe. */
async function startDisplay(path) {
  const program = start(path, ['-displayfd', '3', '-screen', '0', '800x600x24', '-nolisten', 'tcp'], {
    extraPipe: true,
  });
  let number = '';
  program.child.stdio[3].setEncoding('utf8').on('data', (chunk) => {
    number += chunk;
  });
  const ready = () => (number.endsWith('\n') ? `:${number.trim()}` : undefined);
  return { program, name: await until(ready, START_MS, program, 'opened no display') };
}

const freePort = () =>
  new Promise((resolve) => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });

/** Opens WebKitGTK: { version, evaluate(script), goTo(url), close() }. */
export async function launchWebKit() {
  const { browser, driver, display } = await ensureWebKit();
  const programs = [];
  const close = async () => {
    for (const program of programs.splice(0).reverse()) await program.stop();
  };
  try {
    const screen = await startDisplay(display);
    programs.push(screen.program);
    const port = await freePort();
    const env = { DISPLAY: screen.name, GDK_BACKEND: 'x11', LIBGL_ALWAYS_SOFTWARE: '1' };
    const program = start(driver, [`--port=${port}`], { env });
    programs.push(program);

    const send = async (method, path, body) => {
      const response = await fetch(`http://127.0.0.1:${port}${path}`, {
        method,
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      });
      const { value } = await response.json();
      if (!response.ok) throw program.failure(`answered ${method} ${path} with ${value.error}: ${value.message}`);
      return value;
    };
    const status = () => send('GET', '/status').catch(() => undefined);
    await until(status, START_MS, program, 'did not answer');
    const options = { 'webkitgtk:browserOptions': { binary: browser, args: ['--automation'] } };
    const { sessionId, capabilities } = await send('POST', '/session', { capabilities: { alwaysMatch: options } });
    const session = `/session/${sessionId}`;
    return {
      version: capabilities.browserVersion,
      goTo: (url) => send('POST', `${session}/url`, { url }),
      evaluate: (script) => send('POST', `${session}/execute/sync`, { script, args: [] }),
      close: async () => {
        await send('DELETE', session).catch(() => {});
        await close();
      },
    };
  } catch (error) {
    await close();
    throw error;
  }
}
