// npm run bench: builds what is measured and measures it in Node 24, or in the running Node where that cannot be had.
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { WASM_VARIANTS, buildWasm } from '../../cpp/toolchain/build.mjs';
import { runMain, say } from '../../cpp/toolchain/log.mjs';
import { ROOT } from '../../cpp/toolchain/paths.mjs';
import { ensureNode, nodeVersionsAbsent } from '../package/node-versions.mjs';

await runMain(async () => {
  for (const variant of WASM_VARIANTS) await buildWasm(variant, { targets: ['headwise_peak'] });
  const build = spawnSync(process.execPath, [join(ROOT, 'web/build.mjs')], { stdio: 'inherit' });
  if (build.status !== 0) process.exit(build.status ?? 1);
  const absent = nodeVersionsAbsent();
  if (absent) say('bench', `${absent}; measuring in Node ${process.versions.node}`);
  const node = absent ? process.execPath : await ensureNode(24);
  const bench = spawnSync(node, [join(ROOT, 'tests/bench/forward.mjs')], { stdio: 'inherit' });
  process.exit(bench.status ?? 1);
});
