// In a page: the package from the folder beside the tests, and the job that the address names.
import * as headwise from '../../headwise/index.js';
import { JOBS } from './jobs.js';

const job = globalThis.location.search.slice(1);

JOBS[job](headwise).then(
  (result) => (globalThis.result = result),
  (error) => (globalThis.result = { error: `${error.name}: ${error.message}\n${error.stack}` }),
);
