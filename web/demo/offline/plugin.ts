// Writes the service worker into the build, with the list of the files it keeps.
import { createHash } from 'node:crypto';
import { readFileSync, readdirSync } from 'node:fs';
import type { Plugin } from 'vite';

export function offlinePlugin(publicFolder: URL): Plugin {
  return {
    name: 'headwise-offline',
    apply: 'build',
    enforce: 'post',
    generateBundle(_options, bundle) {
      const page = bundle['index.html'];
      if (page?.type !== 'asset') throw new Error('the build has no index.html, which the service worker must keep');
      const files = ['./', ...Object.keys(bundle), ...readdirSync(publicFolder)].filter(
        (name) => name !== 'index.html',
      );
      const code = readFileSync(new URL('./service-worker.js', import.meta.url), 'utf8');
      // Names in assets/ carry a hash of their content; the page's name does not.
      const hash = createHash('sha256').update(files.join('\n')).update(page.source).update(code);
      const version = hash.digest('hex').slice(0, 16);
      this.emitFile({
        type: 'asset',
        fileName: 'service-worker.js',
        source: `const FILES = ${JSON.stringify(files)};\nconst VERSION = ${JSON.stringify(version)};\n${code}`,
      });
    },
  };
}
