// Our package, as the others are called.
import { openOurs, variantsOf } from '../ours.mjs';

export const load = async ({ headwise }) => ({
  variants: () => variantsOf(headwise),
  open: async (w, inputs, variant) => openOurs(headwise, await headwise.load({ variant }), w, inputs),
});
