// In Node: the package by its name, and the job that the argument names; its result goes to the standard output.
import * as headwise from 'headwise';
import { JOBS } from './jobs.js';

const job = process.argv[2];
console.log(JSON.stringify(await JOBS[job](headwise)));
