// Titles of the tests in a JavaScript or TypeScript file that run: no test that is skipped, to do or empty counts, and
// a describe() counts when a test in it runs. Read from the syntax tree, so that a mention elsewhere is none.
import ts from 'typescript';

const TESTS = new Set(['test', 'it']);
const GROUPS = new Set(['describe', 'suite']);
// What leaves a test running whatever the machine; skipIf() and runIf() do not.
const HARMLESS = new Set(['each', 'for', 'concurrent', 'sequential', 'only']);
const TABLES = new Set(['each', 'for']);

/** `test.each(table)` as { root: 'test', modifiers: ['each'], table }, or nothing. */
function readCallee(node) {
  if (ts.isIdentifier(node)) {
    return TESTS.has(node.text) || GROUPS.has(node.text) ? { root: node.text, modifiers: [] } : undefined;
  }
  if (ts.isPropertyAccessExpression(node)) {
    const inner = readCallee(node.expression);
    return inner && { ...inner, modifiers: [...inner.modifiers, node.name.text] };
  }
  if (ts.isCallExpression(node)) {
    const inner = readCallee(node.expression);
    return inner?.modifiers.length ? { ...inner, table: node.arguments[0] } : undefined;
  }
  if (ts.isTaggedTemplateExpression(node)) return readCallee(node.tag);
  return undefined;
}

function textOf(node) {
  if (node === undefined) return '';
  if (ts.isStringLiteralLike(node)) return node.text;
  if (ts.isTemplateExpression(node)) {
    return node.templateSpans.reduce((text, { literal }) => `${text}…${literal.text}`, node.head.text);
  }
  if (ts.isBinaryExpression(node)) return textOf(node.left) + textOf(node.right);
  return '';
}

/** `as const`, `satisfies` and brackets say nothing here. */
function bare(node) {
  while (node && (ts.isAsExpression(node) || ts.isSatisfiesExpression(node) || ts.isParenthesizedExpression(node))) {
    node = node.expression;
  }
  return node;
}

/** Titles of one call: with a table written out in the file, one for each of its rows. */
function titlesOf(title, table, constants) {
  const text = textOf(title);
  let list = bare(table);
  if (list && ts.isIdentifier(list)) list = bare(constants.get(list.text));
  if (!list || !ts.isArrayLiteralExpression(list)) return [text];
  return list.elements.map((row) => {
    const bareRow = bare(row);
    const name = ts.isArrayLiteralExpression(bareRow) ? bareRow.elements[0] : bareRow;
    return text.replace('%s', () => textOf(name));
  });
}

const isFunction = (node) => ts.isArrowFunction(node) || ts.isFunctionExpression(node);

/** { skip: true }, { todo: 'later' }: options of a test, in any place. */
const saysSkip = (node) =>
  ts.isObjectLiteralExpression(node) &&
  node.properties.some(
    (p) => ['skip', 'todo', 'fails'].includes(p.name?.getText()) && p.initializer?.kind !== ts.SyntaxKind.FalseKeyword,
  );

/** A body with nothing in it, or one that begins with context.skip(). */
function doesNothing(f) {
  if (!ts.isBlock(f.body)) return false;
  const [first] = f.body.statements;
  if (first === undefined) return true;
  if (!ts.isExpressionStatement(first) || !ts.isCallExpression(first.expression)) return false;
  const { expression } = first.expression;
  return ts.isPropertyAccessExpression(expression) && ['skip', 'todo'].includes(expression.name.text);
}

export function titlesOfJs(source, fileName) {
  const file = ts.createSourceFile(fileName, source, ts.ScriptTarget.Latest, true);
  const constants = new Map();
  const titles = [];

  /** Whether a test that runs is in there. */
  function visitAll(node) {
    let runs = false;
    ts.forEachChild(node, (child) => {
      if (visit(child)) runs = true;
    });
    return runs;
  }

  function visit(node) {
    if (ts.isVariableDeclaration(node) && ts.isIdentifier(node.name)) constants.set(node.name.text, node.initializer);
    if (!ts.isCallExpression(node)) return visitAll(node);
    const callee = readCallee(node.expression);
    // test.each(table) is not yet the test.
    const isTable = callee?.table === undefined && TABLES.has(callee?.modifiers.at(-1));
    if (callee === undefined || isTable) return visitAll(node);
    const [title, ...rest] = node.arguments;
    const body = rest.find(isFunction);
    const skipped =
      !callee.modifiers.every((name) => HARMLESS.has(name)) ||
      rest.some(saysSkip) ||
      (TESTS.has(callee.root) && (body === undefined || doesNothing(body)));
    if (skipped) return false;
    const runs = TESTS.has(callee.root) || visitAll(node);
    if (runs) titles.push(...titlesOf(title, callee.table, constants));
    return runs;
  }

  visitAll(file);
  return titles;
}
