// The package under test, imported by its name as any user does; built first when this clone has no build yet.
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from '../../../cpp/toolchain/paths.mjs';
import { need } from '../../lib/prepare.mjs';

/** One entry per build of the WASM module that this engine can run. */
export async function loadPackage() {
  if (!existsSync(join(ROOT, 'web/dist/node.js'))) await need('package');
  const headwise = await import('headwise');
  const { parseSafetensors } = await import('headwise/safetensors');
  const variants = headwise.detectFeatures().relaxedSimd ? ['simd', 'relaxed'] : ['simd'];
  const builds = [];
  let version;
  for (const variant of variants) {
    const runtime = await headwise.load({ variant });
    if (runtime.variant !== variant) throw new Error(`load({ variant: '${variant}' }) gave build ${runtime.variant}`);
    ({ version } = runtime);
    builds.push({ name: variant, api: { ...headwise, parseSafetensors, options: { runtime } } });
  }
  return { builds, parseSafetensors, version };
}
