import type { Browser } from 'playwright-core';

export const POLICY: string;

export interface PageServer {
  readonly origin: string;
  readonly url: string;
  /** Addresses that match are answered with 503, until something else is set. */
  block(pattern: RegExp | undefined): void;
  close(): Promise<void>;
}

export function servePage(folder: string, policy?: string): Promise<PageServer>;
export function chromiumOptions(): Promise<{ executablePath: string; args: string[] }>;
export function launchChromium(): Promise<Browser>;
