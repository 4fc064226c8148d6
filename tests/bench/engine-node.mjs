// One section in the Node that runs this file: node engine-node.mjs SECTION '{"quick":true}' prints its figures as JSON.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import * as headwise from 'headwise';
import { ROOT } from '../../cpp/toolchain/paths.mjs';
import { EFFORT, QUICK } from './measure.mjs';
import { SECTIONS } from './sections/index.mjs';

const [name, options = '{}'] = process.argv.slice(2);
const more = JSON.parse(options);
const readBytes = (path) => readFileSync(join(ROOT, path));
const figures = await SECTIONS[name]({ headwise, readBytes, effort: more.quick ? QUICK : EFFORT, ...more });
console.log(JSON.stringify(figures));
