// Why a goal is not met, as profiling found it, and what was tried: { goal, what: RegExp of the row, reason }. The
// table of goals shows the reason of the first that fits a row which fails.
export const REASONS = [];

export const reasonOf = (row, reasons = REASONS) =>
  reasons.find(({ goal, what }) => goal === row.goal && what.test(row.what))?.reason;
