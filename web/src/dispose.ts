// Symbol.dispose where the engine has none yet (Node 20 before 20.5, Safari). The registered symbol is the one other
// libraries fall back to, and TypeScript's `using` helper throws without any, so it is only used, never installed.
export const DISPOSE: typeof Symbol.dispose = (Symbol.dispose ?? Symbol.for('Symbol.dispose')) as typeof Symbol.dispose;
