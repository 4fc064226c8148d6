import { startAttention } from './attention-client.js';

let frames = 0;
function count() {
  frames += 1;
  document.getElementById('frames').textContent = String(frames);
  requestAnimationFrame(count);
}
count();

const attention = startAttention();
const length = 4096;
const data = Float32Array.from({ length: length * 64 }, (_, i) => Math.sin(i));
const begun = performance.now();
const output = await attention.forward({ data, shape: [length, 64] });
const first = Array.from(output.data.slice(0, 3), (value) => value.toFixed(4)).join(', ');
const wrong = await attention.forward({ data: new Float32Array(3), shape: [1, 3] }).catch((error) => error.code);
document.getElementById('result').textContent =
  `attention of ${output.shape.join(' × ')} in ${Math.round(performance.now() - begun)} ms, begins ${first}; ` +
  `a wrong shape gives ${wrong}`;
attention.stop();
