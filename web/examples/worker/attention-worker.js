// The worker: one layer, one answer for each message. Headwise needs nothing special here.
import { MultiHeadAttention } from 'headwise';

const ready = MultiHeadAttention.create({ embedDim: 64, numHeads: 4 });

self.onmessage = async ({ data: { id, x } }) => {
  try {
    const { output } = (await ready).forward(x);
    // The buffer is moved, not copied.
    postMessage({ id, output }, [output.data.buffer]);
  } catch (error) {
    // Error classes do not survive the journey; their text and code do.
    postMessage({ id, error: { message: error.message, code: error.code } });
  }
};
