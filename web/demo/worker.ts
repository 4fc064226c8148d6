// The model runs here, so that typing and scrolling stay smooth.
import { loadModel, StepError, type LoadedModel } from './models/wordnet-nano.js';
import type { Failure, Fill, Reply, ResultReply, RunRequest } from './protocol.js';

const FILLS = 5;

// The page's own types know only windows; this is the part of a worker's scope that is used here.
const scope = globalThis as unknown as {
  postMessage(message: Reply, transfer?: Transferable[]): void;
  addEventListener(type: 'message', listener: (event: MessageEvent<RunRequest>) => void): void;
};

function failureOf(error: unknown, step: string): Failure {
  const message = error instanceof Error ? error.message : String(error);
  return { step: error instanceof StepError ? error.step : step, message };
}

function run({ runtime, tokenizer, bert }: LoadedModel, text: string): ResultReply {
  const encoding = tokenizer.encode(text, bert.config.max_position_embeddings);
  const begun = performance.now();
  const { hidden, maps } = bert.encode(encoding.ids);
  const milliseconds = performance.now() - begun;
  const fills: Fill[] = encoding.ids.flatMap((id, position) => {
    if (id !== tokenizer.maskId) return [];
    const words = bert
      .fill(hidden, position, FILLS)
      .map((word) => ({ text: tokenizer.piece(word.id), probability: word.probability }));
    return [{ position, words }];
  });
  return { type: 'result', text, encoding, maps, fills, milliseconds, report: runtime.report() };
}

try {
  const model = await loadModel();
  scope.addEventListener('message', ({ data }) => {
    try {
      const result = run(model, data.text);
      scope.postMessage(result, [result.maps.data.buffer]);
    } catch (error) {
      scope.postMessage({ type: 'failed', failure: failureOf(error, 'run the model') });
    }
  });
  const { weightCount, config } = model.bert;
  scope.postMessage({
    type: 'ready',
    report: model.runtime.report(),
    model: { weights: weightCount, limit: config.max_position_embeddings },
  });
} catch (error) {
  scope.postMessage({ type: 'failed', failure: failureOf(error, 'start the model') });
}
