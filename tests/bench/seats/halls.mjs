// Where seats are: { name, seat(): { call(method, ...args), leave() }, close() }.
import { fork } from 'node:child_process';
import { join } from 'node:path';
import { ROOT } from '../../../cpp/toolchain/paths.mjs';
import { launchChromium, servePage } from '../../web/browser/demo-harness.mjs';
import { PAGE_POLICY } from '../engines.mjs';

/** Rejects when `promise` takes longer than `ms`. */
async function within(ms, promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer in ${ms / 1000} s`)), ms);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

const CALL_MS = 120_000;

async function nodeSeat({ path, flags }) {
  const child = fork(join(ROOT, 'tests/bench/seats/seat-node.mjs'), [], {
    execPath: path, execArgv: flags, stdio: ['ignore', 'ignore', 'ignore', 'ipc'], serialization: 'advanced',
  });
  const waiting = new Map();
  const answer = (id) => new Promise((resolve, reject) => waiting.set(id, { resolve, reject }));
  child.on('message', ({ id, value, error }) => {
    const { resolve, reject } = waiting.get(id);
    waiting.delete(id);
    if (error === undefined) resolve(value);
    else reject(new Error(error));
  });
  child.on('exit', (code, signal) => {
    for (const { reject } of waiting.values()) reject(new Error(`its process ended (${signal ?? code})`));
  });
  await within(CALL_MS, answer('ready'));
  let calls = 0;
  return {
    call(method, ...args) {
      const id = (calls += 1);
      const promise = answer(id);
      child.send({ id, method, args });
      return within(CALL_MS, promise);
    },
    leave: async () => void child.kill('SIGKILL'),
  };
}

export const nodeHall = (node, name) => ({ name, seat: () => nodeSeat(node), close: async () => {} });

export async function chromiumHall() {
  const [browser, server] = [await launchChromium(), await servePage(ROOT, PAGE_POLICY)];
  return {
    name: `Chromium ${browser.version()}`,
    async seat() {
      const context = await browser.newContext();
      const page = await context.newPage();
      await page.goto(`${server.url}tests/bench/page/seat.html`);
      await page.waitForFunction(() => 'seat' in globalThis);
      return {
        call: (method, ...args) =>
          within(CALL_MS, page.evaluate(([name, given]) => globalThis.seat[name](...given), [method, args])),
        leave: () => context.close(),
      };
    },
    async close() {
      await browser.close();
      await server.close();
    },
  };
}
