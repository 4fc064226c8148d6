// Lints the package, its tests and its scripts. Style is prettier's; here are mistakes and the rules of the house.
import js from '@eslint/js';
import ts from 'typescript-eslint';

const GLOBALS = [
  ...['console', 'URL', 'WebAssembly', 'TextDecoder', 'TextEncoder', 'performance', 'fetch', 'setTimeout'],
  ...['clearTimeout', 'setInterval', 'clearInterval', 'AbortSignal', 'AbortController', 'process', 'Buffer'],
  ...['document', 'Worker', 'self', 'postMessage', 'requestAnimationFrame', 'require', 'exports', 'module'],
];

/** ECMAScript lets engines approximate them; of square roots it does, too, but every engine rounds them rightly. */
const UNPORTABLE = [
  ...['acos', 'acosh', 'asin', 'asinh', 'atan', 'atan2', 'atanh', 'cbrt', 'cos', 'cosh', 'exp', 'expm1', 'hypot'],
  ...['log', 'log10', 'log1p', 'log2', 'pow', 'random', 'sin', 'sinh', 'tan', 'tanh'],
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
    // Results are the same bits in every engine, and these functions are not: portable-math.ts has what is needed.
    files: ['web/src/**/*.ts'],
    rules: {
      'no-restricted-properties': ['error', ...UNPORTABLE.map((property) => ({ object: 'Math', property }))],
      'no-restricted-syntax': [
        'error',
        { selector: 'ExportDefaultDeclaration', message: 'use a named export' },
        {
          selector: "BinaryExpression[operator='**']:not([left.type='Literal'][right.type='Literal'])",
          message: 'powers may differ between engines; see portable-math.ts',
        },
      ],
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
