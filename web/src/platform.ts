// What differs between browsers and Node: where local files are read. Browsers have no such thing, so the reader is
// absent here, and node.ts, the entry that only Node is given, puts one in. No file below index.ts imports from Node.

export interface LocalFiles {
  /** The content of a file: URL. */
  read(url: URL): Promise<Uint8Array>;
  /** A path or an address, relative to the working directory. */
  resolve(path: string): URL;
}

let files: LocalFiles | undefined;

export const setLocalFiles = (implementation: LocalFiles): void => {
  files = implementation;
};
export const localFiles = (): LocalFiles | undefined => files;
