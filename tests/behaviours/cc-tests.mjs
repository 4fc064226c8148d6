// Names of the GoogleTest tests in a file, each with the comment right above it. Disabled tests, and those that begin
// by skipping themselves, are left out.

const TEST = /((?:^\/\/.*\n)*)^TEST(?:_[FP])?\(\s*\w+\s*,\s*(\w+)\s*\)\s*\{\s*(GTEST_SKIP\b|\})?/gm;

/** [{ name, comment }] */
export function testsOfCc(source) {
  return [...source.replace(/^#if 0$[^]*?^#endif$/gm, '').matchAll(TEST)]
    .map(([, comment, name, nothing]) => ({ name, comment, runs: nothing === undefined }))
    .filter(({ name, runs }) => runs && !name.startsWith('DISABLED_'))
    .map(({ name, comment }) => ({ name, comment }));
}

/** Ids at the beginning of a name: N21N26OneMask has N-21 and N-26. */
export function idsOfName(name) {
  const [beginning] = /^(?:[A-Z]\d{2})*(?=[A-Z]|$)/.exec(name) ?? [''];
  return [...beginning.matchAll(/([A-Z])(\d{2})/g)].map(([, family, number]) => `${family}-${number}`);
}
