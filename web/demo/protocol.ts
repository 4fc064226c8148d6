// What the page and its worker say to each other.
import type { RuntimeReport } from 'headwise';
import type { Encoding } from './models/tokenizer.js';

/** Attention of every head, `[layers, heads, length, length]`: query rows, key columns. */
export interface AttentionMaps {
  readonly data: Float32Array;
  readonly layers: number;
  readonly heads: number;
  readonly length: number;
}

/** The likeliest words for one blank. */
export interface Fill {
  /** The blank's piece. */
  readonly position: number;
  readonly words: readonly { readonly text: string; readonly probability: number }[];
}

export interface ModelFacts {
  readonly weights: number;
  readonly limit: number;
}

export interface Failure {
  /** What could not be done. */
  readonly step: string;
  readonly message: string;
}

export interface RunRequest {
  readonly text: string;
}

export interface ReadyReply {
  readonly type: 'ready';
  readonly report: RuntimeReport;
  readonly model: ModelFacts;
}

export interface ResultReply {
  readonly type: 'result';
  readonly text: string;
  readonly encoding: Encoding;
  readonly maps: AttentionMaps;
  readonly fills: readonly Fill[];
  /** Time of the forward pass: embeddings and all layers. */
  readonly milliseconds: number;
  readonly report: RuntimeReport;
}

export interface FailedReply {
  readonly type: 'failed';
  readonly failure: Failure;
}

export type Reply = ReadyReply | ResultReply | FailedReply;
