// The page's side of the worker: one question at a time, and only the newest text waits. Typing faster than the model
// computes skips texts; it never queues them.
import type { Failure, ReadyReply, Reply, ResultReply, RunRequest } from './protocol.js';

export interface EngineListener {
  onReady(reply: ReadyReply): void;
  onResult(reply: ResultReply): void;
  onFailure(failure: Failure): void;
}

export class Engine {
  readonly #listener: EngineListener;
  #worker: Worker | undefined;
  #state: 'starting' | 'idle' | 'busy' | 'failed' = 'failed';
  #waiting: string | undefined;

  constructor(listener: EngineListener) {
    this.#listener = listener;
  }

  /** Starts the worker, or starts a new one after a failure. A text asked for meanwhile is kept. */
  start(): void {
    this.#worker?.terminate();
    this.#state = 'starting';
    // Written out literally: bundlers find workers by this form.
    const worker = new Worker(new URL('./worker.ts', import.meta.url), { type: 'module' });
    this.#worker = worker;
    worker.addEventListener('message', (event: MessageEvent<Reply>) => {
      if (worker === this.#worker) this.#receive(event.data);
    });
    worker.addEventListener('error', (event) => {
      event.preventDefault();
      if (worker !== this.#worker) return;
      this.#fail({
        step: 'start the worker',
        message: event.message || 'its script could not be loaded; is the page complete, and is the server there?',
      });
    });
  }

  ask(text: string): void {
    this.#waiting = text;
    this.#next();
  }

  #next(): void {
    if (this.#state !== 'idle' || this.#waiting === undefined) return;
    const request: RunRequest = { text: this.#waiting };
    this.#waiting = undefined;
    this.#state = 'busy';
    this.#worker?.postMessage(request);
  }

  #receive(reply: Reply): void {
    if (reply.type === 'failed') {
      this.#fail(reply.failure);
      return;
    }
    this.#state = 'idle';
    if (reply.type === 'ready') this.#listener.onReady(reply);
    else this.#listener.onResult(reply);
    this.#next();
  }

  #fail(failure: Failure): void {
    this.#state = 'failed';
    this.#listener.onFailure(failure);
  }
}
