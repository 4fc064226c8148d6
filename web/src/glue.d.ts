// Emscripten's glue, the same file for every build of the module; web/build.mjs puts glue.js beside this.
import type { CreateModule } from './raw.js';
declare const createModule: CreateModule;
export default createModule;
