import { defineConfig } from 'vite';
import { offlinePlugin } from './offline/plugin.js';

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
  // In the development server the package must keep its place beside its .wasm files.
  optimizeDeps: { exclude: ['headwise'] },
  plugins: [offlinePlugin(new URL('./public/', import.meta.url))],
});
