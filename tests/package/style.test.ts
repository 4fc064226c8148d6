// Types, lint and format, so that `npm test` is all that CI needs.
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { ROOT } from '../../cpp/toolchain/paths.mjs';

const execute = promisify(execFile);

test.each(['typecheck', 'lint', 'format:check'])('npm run %s', async (script) => {
  const { stdout, stderr, code } = await execute('npm', ['run', script, '--silent'], { cwd: ROOT }).then(
    (done) => ({ ...done, code: 0 }),
    (error: { stdout: string; stderr: string; code: number }) => error,
  );
  expect(code, stdout + stderr).toBe(0);
});
