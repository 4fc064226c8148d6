// Web workers in Node, as far as README's examples use them: loaded before an example by --import.
import { Worker as NodeWorker, isMainThread, parentPort } from 'node:worker_threads';

class Worker {
  onmessage = null;
  #worker;

  constructor(url) {
    // It inherits --import.
    this.#worker = new NodeWorker(url);
    this.#worker.on('message', async (data) => {
      this.onmessage?.({ data });
      // A page stays open; an example ends when it has its answer.
      await this.#worker.terminate();
    });
  }

  postMessage(data, transfer) {
    this.#worker.postMessage(data, transfer);
  }
}

globalThis.Worker = Worker;
if (!isMainThread) globalThis.postMessage = (data, transfer) => parentPort.postMessage(data, transfer);
// A module may only assign to what exists. Messages wait until somebody listens.
Object.defineProperty(globalThis, 'onmessage', {
  set(listener) {
    parentPort?.on('message', (data) => listener({ data }));
  },
});
