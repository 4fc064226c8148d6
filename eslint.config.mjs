// Lints the package, its tests and its scripts. Style is prettier's; here are mistakes and the rules of the house.
import js from '@eslint/js';
import ts from 'typescript-eslint';

const GLOBALS = [
  ...['console', 'URL', 'WebAssembly', 'TextDecoder', 'TextEncoder', 'performance', 'fetch', 'setTimeout'],
  ...['clearTimeout', 'setInterval', 'clearInterval', 'AbortSignal', 'AbortController', 'process', 'Buffer'],
  ...['document', 'Worker', 'self', 'postMessage', 'requestAnimationFrame', 'require', 'exports', 'module'],
];

export default ts.config(
  // Other folders have their own hands; types.ts is there to be compiled, not to be run.
  { ignores: ['**/node_modules/', '**/dist/', 'build/', 'cpp/', 'web/demo/', 'tests/{lib,bench,conformance,cpp}/'] },
  { ignores: ['tests/run.mjs', 'tests/web/browsers.mjs', 'tests/package/consumer/types.ts'] },
  js.configs.recommended,
  {
    files: ['**/*.{js,mjs,cjs}'],
    languageOptions: { globals: Object.fromEntries(GLOBALS.map((name) => [name, 'readonly'])) },
  },
  {
    files: ['web/src/**/*.ts', 'tests/**/*.ts', 'web/examples/**/*.ts'],
    extends: [ts.configs.strict],
    rules: {
      '@typescript-eslint/explicit-module-boundary-types': 'error',
      '@typescript-eslint/consistent-type-imports': 'error',
      // Named exports only: one name for one thing, everywhere.
      'no-restricted-syntax': ['error', { selector: 'ExportDefaultDeclaration', message: 'use a named export' }],
      'no-restricted-globals': ['error', 'process', 'Buffer', 'require'],
      eqeqeq: 'error',
      // A constructor that only narrows the type of a parameter is not useless.
      '@typescript-eslint/no-useless-constructor': 'off',
    },
  },
  {
    // The glue is Emscripten's, and has a default export.
    files: ['web/src/glue.d.ts'],
    rules: { 'no-restricted-syntax': 'off' },
  },
  {
    files: ['tests/**/*.ts'],
    rules: { 'no-restricted-globals': 'off', '@typescript-eslint/no-non-null-assertion': 'off' },
  },
  {
    // Browser files may not depend on Node; node.ts is the one door.
    files: ['web/src/**/*.ts'],
    ignores: ['web/src/node.ts'],
    rules: {
      'no-restricted-imports': ['error', { patterns: [{ group: ['node:*'], message: 'only node.ts may' }] }],
    },
  },
);
