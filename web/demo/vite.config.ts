import { defineConfig } from 'vite';

export default defineConfig({
  // Relative addresses: the built page works from any folder of any server.
  base: './',
  build: {
    target: 'es2022',
    // Data URLs would be refused by the page's Content-Security-Policy.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  worker: { format: 'es' },
});
