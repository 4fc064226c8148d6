// Arguments of both commands: --flag, and --name A,B.
import { SetupError } from '../../cpp/toolchain/log.mjs';

/** { flag: true, name: ['A', 'B'] } of what is known; `lists` says what a list may hold. */
export function parseArguments(args, { flags = [], lists = {} }, usage) {
  const result = {};
  for (let i = 0; i < args.length; i += 1) {
    const [flag, inline] = args[i].split(/=(.*)/s);
    const name = flag.replace(/^--/, '');
    if (flags.includes(name) && inline === undefined) {
      result[name] = true;
    } else if (Object.hasOwn(lists, name)) {
      const value = inline ?? args[++i];
      if (!value) throw new SetupError(`${flag} names nothing`, usage);
      result[name] = value.split(',');
      const unknown = result[name].find((entry) => !lists[name].includes(entry));
      if (unknown !== undefined) throw new SetupError(`${flag} cannot be "${unknown}"`, `use ${lists[name].join(', ')}`);
    } else {
      throw new SetupError(`unknown argument ${args[i]}`, usage);
    }
  }
  return result;
}
