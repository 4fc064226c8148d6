// Builds what is measured: the package, and the bare modules of this folder.
import { join } from 'node:path';
import { WASM_VARIANTS, buildWasm } from '../../cpp/toolchain/build.mjs';
import { run } from '../../cpp/toolchain/log.mjs';
import { ROOT } from '../../cpp/toolchain/paths.mjs';

const MODULES = ['headwise_peak', 'headwise_read', 'headwise_tiny'];

export async function buildBareModules() {
  for (const variant of WASM_VARIANTS) await buildWasm(variant, { targets: MODULES });
}

export async function buildBench() {
  await buildBareModules();
  await run(process.execPath, [join(ROOT, 'web/build.mjs')], { cwd: ROOT, topic: 'bench', title: 'the package' });
}
