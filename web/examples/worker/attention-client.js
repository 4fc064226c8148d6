// The page's side: a promise for each message.

export function startAttention() {
  const worker = new Worker(new URL('./attention-worker.js', import.meta.url), { type: 'module' });
  const waiting = new Map();
  let lastId = 0;
  worker.onmessage = ({ data: { id, output, error } }) => {
    const { resolve, reject } = waiting.get(id);
    waiting.delete(id);
    if (error) reject(Object.assign(new Error(error.message), { code: error.code }));
    else resolve(output);
  };
  worker.onerror = ({ message }) => {
    for (const { reject } of waiting.values()) reject(new Error(`the worker failed: ${message}`));
    waiting.clear();
  };
  return {
    /** Self-attention of x; its buffer is moved to the worker, so that x is empty afterwards. */
    forward(x) {
      return new Promise((resolve, reject) => {
        const id = ++lastId;
        waiting.set(id, { resolve, reject });
        worker.postMessage({ id, x }, [x.data.buffer]);
      });
    },
    stop: () => worker.terminate(),
  };
}
