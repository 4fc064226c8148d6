// In a page: the package as it was built, and the job that the address names.
import * as headwise from '../../../../web/dist/index.js';
import { parseSafetensors } from '../../../../web/dist/safetensors.js';
import { conformance } from './conformance.js';
import { JOBS } from './jobs.js';

const jobs = { ...JOBS, conformance: () => conformance(headwise, parseSafetensors) };
const job = globalThis.location.search.slice(1);

jobs[job](headwise).then(
  (result) => (globalThis.result = result),
  (error) => (globalThis.result = { error: `${error.name}: ${error.message}\n${error.stack}` }),
);
