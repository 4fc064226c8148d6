// Where the shipped model's files are, and how they become a running model. The files lie beside this module; the
// bundler turns each literal URL into an address relative to the page, so that the page runs from any sub-path.
import { load, type Runtime } from 'headwise';
import { parseSafetensors } from 'headwise/safetensors';
import { Bert } from './bert.js';
import config from './wordnet-nano/config.json';
import { Tokenizer } from './tokenizer.js';

const WEIGHTS_URL = new URL('./wordnet-nano/model.safetensors', import.meta.url);
const VOCABULARY_URL = new URL('./wordnet-nano/vocab.txt', import.meta.url);

/** An error with the step that failed, in words for the reader of the page. */
export class StepError extends Error {
  constructor(
    readonly step: string,
    cause: unknown,
  ) {
    super(cause instanceof Error ? cause.message : String(cause), { cause });
  }
}

async function step<T>(name: string, work: () => T | Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw new StepError(name, error);
  }
}

async function fetchFile(url: URL): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(url);
  } catch (error) {
    throw new Error(`${url.pathname} could not be fetched (${(error as Error).message})`, { cause: error });
  }
  if (!response.ok) throw new Error(`${url.pathname} answered ${response.status}; it must answer 200`);
  return response;
}

export interface LoadedModel {
  readonly runtime: Runtime;
  readonly tokenizer: Tokenizer;
  readonly bert: Bert;
}

/** Loads the package's module and the model's files side by side. */
export async function loadModel(): Promise<LoadedModel> {
  const [runtime, vocabulary, weights] = await Promise.all([
    step('load the WebAssembly module', () => load()),
    step('load the word list', async () => (await fetchFile(VOCABULARY_URL)).text()),
    step('load the weights', async () => (await fetchFile(WEIGHTS_URL)).arrayBuffer()),
  ]);
  return step('read the model', () => {
    const tokenizer = new Tokenizer(vocabulary);
    const bert = new Bert(parseSafetensors(weights).tensors, config, runtime);
    return { runtime, tokenizer, bert };
  });
}
