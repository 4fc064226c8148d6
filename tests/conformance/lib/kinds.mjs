// The kinds of cases there are, and the adapter of each. A kind whose part of the library is not built yet has none:
// selecting it fails.
import { runKerasMha } from './keras-mha.mjs';
import { runOnnxAttention } from './onnx-attention.mjs';
import { runOrtAttention } from './ort-attention.mjs';
import { runOrtGqa } from './ort-gqa.mjs';
import { runOrtMha } from './ort-mha.mjs';
import { runRotary } from './rotary.mjs';
import { runTorchMha } from './torch-mha.mjs';

export const KINDS = new Map([
  ['torch_mha', runTorchMha],
  ['torch_mha_grad', undefined],
  ['keras_mha', runKerasMha],
  ['onnx_attention', runOnnxAttention],
  ['onnx_rotary', runRotary],
  ['ort_onnx_attention', runOnnxAttention],
  ['ort_mha', runOrtMha],
  ['ort_attention', runOrtAttention],
  ['ort_gqa', runOrtGqa],
  ['ort_rotary', runRotary],
]);
