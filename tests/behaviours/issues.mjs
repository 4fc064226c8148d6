// The issues that rows of the lists name, in their order. When one is done, its rows must have tests: set done.
export const ISSUES = [
  { name: 'Foundation', done: true },
  { name: 'Semantics', done: true },
  { name: 'Limit', done: false },
  { name: 'Page', done: false },
  { name: 'Package', done: false },
  { name: 'Learning', done: false },
];

/** The issue of every line of BEHAVIOURS.md that concerns the forward pass. */
export const ISSUE_OF_LINES = 'Semantics';
