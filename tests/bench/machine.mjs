// On what it was measured.
import { execFileSync } from 'node:child_process';
import { arch, cpus, loadavg, release, type } from 'node:os';
import { ROOT } from '../../cpp/toolchain/paths.mjs';

function commit() {
  try {
    return execFileSync('git', ['describe', '--always', '--dirty', '--abbrev=12'], { cwd: ROOT, encoding: 'utf8' }).trim();
  } catch {
    return 'unknown';
  }
}

/** Called before anything is measured: the load is that of others then. */
export const machine = () => ({
  processor: cpus()[0]?.model.trim() ?? 'unknown',
  cores: cpus().length,
  system: `${type()} ${release()} ${arch()}`,
  load: loadavg()[0],
  commit: commit(),
  date: new Date().toISOString().slice(0, 10),
});

export const machineLine = ({ processor, cores, system, load, commit: at, date }) =>
  `${date}, commit ${at}: ${processor}, ${cores} cores, ${system}; load before the run: ${load.toFixed(2)}`;
