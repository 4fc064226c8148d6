// The kinds of cases there are, and the adapter of each. A kind whose part of the library is not built yet has none:
// selecting it fails.
import { runKerasMha } from './keras-mha.mjs';
import { runOnnxAttention } from './onnx-attention.mjs';
import { runTorchMha } from './torch-mha.mjs';

export const KINDS = new Map([
  ['torch_mha', runTorchMha],
  ['torch_mha_grad', undefined],
  ['keras_mha', runKerasMha],
  ['onnx_attention', runOnnxAttention],
  ['onnx_rotary', undefined],
  ['ort_onnx_attention', runOnnxAttention],
  ['ort_mha', undefined],
  ['ort_attention', undefined],
  ['ort_gqa', undefined],
  ['ort_rotary', undefined],
]);
