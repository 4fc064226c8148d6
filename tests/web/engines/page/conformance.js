// The public conformance cases in a page: their bytes come over the server, everything else is what Node runs.
import { runCases } from '../../../conformance/lib/cases.mjs';
import { makeSelection } from '../../../conformance/lib/selection.mjs';
import { variantsOf } from './jobs.js';

const FOLDER = '../../../../cases/';

async function fetchBytes(file) {
  const response = await fetch(FOLDER + file);
  if (!response.ok) throw new Error(`${file} answered status ${response.status}`);
  return new Uint8Array(await response.arrayBuffer());
}

/** { passed, failed, skipped, lines } of all cases in every build this engine has; `lines` say what failed. */
export async function conformance(headwise, parseSafetensors) {
  const listed = await (await fetch(`${FOLDER}index.json`)).json();
  const files = listed.map(({ file }) => file);
  const bytes = new Map(await Promise.all(files.map(async (file) => [file, await fetchBytes(file)])));
  const builds = [];
  for (const variant of variantsOf(headwise)) {
    const runtime = await headwise.load({ variant });
    builds.push({ name: variant, api: { ...headwise, parseSafetensors, options: { runtime } } });
  }
  const lines = [];
  const counts = runCases({
    files,
    problems: [],
    read: (file) => bytes.get(file),
    selection: makeSelection({}),
    builds,
    parseSafetensors,
    print: (line) => lines.push(line),
  });
  return { ...counts, lines: lines.filter((line) => line.startsWith('FAILED')), cases: files.length };
}
