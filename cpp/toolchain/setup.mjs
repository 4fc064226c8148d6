// npm run setup: everything the builds and tests need, laid once; does nothing the second time.
import { ensureBuildTools } from './build.mjs';
import { nativeCompiler } from './compiler.mjs';
import { ensureEmscripten } from './emscripten.mjs';
import { runMain, say, sinceStart } from './log.mjs';
import { ensureNodeModules } from './node-modules.mjs';
import { ensureSources } from './sources.mjs';

await runMain(async () => {
  await ensureBuildTools();
  const { emcc, version } = await ensureEmscripten();
  await ensureSources();
  await nativeCompiler();
  await ensureNodeModules();
  say('setup', `complete after ${sinceStart()}; emcc ${version} is ${emcc}`);
});
