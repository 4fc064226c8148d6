// One case: a safetensors file with inputs, parameters and wanted results, its metadata saying what it is. The case
// keeps book of what an adapter took, so that an input or attribute nobody looked at is noticed.

/** Why a case cannot be run or judged; the text is all a reader needs. */
export class CaseError extends Error {}

const WANTED_PREFIXES = ['out', 'ref64', 'ref32', 'grad'];
const INPUT_PREFIXES = ['in', 'param'];
const FULLY_MASKED = ['zero', 'nan', 'uniform', 'finite'];

function parseNumber(text, what) {
  // Number('') and Number(' ') are 0.
  const value = /^\s*$/.test(text) ? NaN : Number(text);
  if (!Number.isFinite(value)) throw new CaseError(`${what} is "${text}", want a finite number`);
  return value;
}

export class Case {
  #tensors;
  #metadata;
  #taken = new Set();

  /**
   * @param read  (file) => its bytes
   * @param parseSafetensors the package's reader
   */
  static read(file, read, parseSafetensors) {
    let parsed;
    try {
      parsed = parseSafetensors(read(file));
    } catch (error) {
      throw new CaseError(`cannot be read: ${error.message}`);
    }
    return new Case(file, parsed.tensors, parsed.metadata ?? {});
  }

  constructor(file, tensors, metadata) {
    this.file = file;
    this.#tensors = new Map(Object.entries(tensors));
    this.#metadata = metadata;
    if (!metadata.kind) throw new CaseError('its metadata names no kind');
    this.kind = metadata.kind;
    this.features = (metadata.features ?? '').split(/\s+/).filter(Boolean);
    this.note = metadata.note ?? '';
  }

  get tolerance() {
    const [abs, rel] = ['abs', 'rel'].map((end) => {
      const text = this.#metadata[`tol_${end}`];
      if (text === undefined) throw new CaseError(`tol_${end} is missing`);
      const value = parseNumber(text, `tol_${end}`);
      if (value < 0) throw new CaseError(`tol_${end} is ${value}, want 0 or more`);
      return value;
    });
    return { abs, rel };
  }

  /** What rows without any allowed key give, or undefined when there are none. */
  get fullyMasked() {
    const value = this.#metadata.fully_masked;
    if (value !== undefined && !FULLY_MASKED.includes(value)) {
      throw new CaseError(`fully_masked is "${value}", want one of ${FULLY_MASKED.join(', ')}`);
    }
    return value;
  }

  /** The wanted tensors as [{ name, result, tensor }]; `result` is the name without its prefix. */
  wanted() {
    const list = [];
    for (const [name, tensor] of this.#tensors) {
      const [prefix, result] = name.split(/\.(.*)/s);
      if (WANTED_PREFIXES.includes(prefix)) list.push({ name, result, tensor });
      else if (!INPUT_PREFIXES.includes(prefix)) throw new CaseError(`tensor ${name} is neither input nor result`);
    }
    if (!list.length) throw new CaseError('it wants no result: there is nothing to compare');
    return list;
  }

  wants(result) {
    return this.wanted().some((want) => want.result === result);
  }

  /** The tensor `in.<name>` or what it is an alias of, or undefined. Checks dtype and rank. */
  input(name, { dtypes = ['F32'], ranks } = {}) {
    const seen = new Set();
    let target = name;
    for (let alias; (alias = this.#metadata[`alias.${target}`]) !== undefined; target = alias) {
      if (this.#tensors.has(`in.${target}`)) throw new CaseError(`in.${target} is present and an alias of ${alias}`);
      if (seen.has(target)) throw new CaseError(`alias.${target} leads back to itself`);
      seen.add(target);
      this.#taken.add(`alias.${target}`);
    }
    if (target !== name && !this.#tensors.has(`in.${target}`)) {
      throw new CaseError(`alias.${name} leads to in.${target}, which is missing`);
    }
    return this.#take(`in.${target}`, dtypes, ranks);
  }

  requiredInput(name, rules) {
    return this.input(name, rules) ?? this.#missing(`in.${name}`);
  }

  /** Whether both names stand for the same tensor. */
  same(a, b) {
    return this.input(a) !== undefined && this.input(a) === this.input(b);
  }

  param(name, { ranks } = {}) {
    return this.#take(`param.${name}`, ['F32'], ranks);
  }

  requiredParam(name, rules) {
    return this.param(name, rules) ?? this.#missing(`param.${name}`);
  }

  flag(name, fallback) {
    const text = this.attr(name);
    if (text === undefined) return fallback;
    if (text !== '0' && text !== '1') throw new CaseError(`attr.${name} is "${text}", want 0 or 1`);
    return text === '1';
  }

  number(name, fallback) {
    const text = this.attr(name);
    return text === undefined ? fallback : parseNumber(text, `attr.${name}`);
  }

  integer(name, fallback) {
    const value = this.number(name, fallback);
    if (value !== undefined && !Number.isInteger(value)) {
      throw new CaseError(`attr.${name} is ${value}, want a whole number`);
    }
    return value;
  }

  attr(name) {
    const key = `attr.${name}`;
    if (!Object.hasOwn(this.#metadata, key)) return undefined;
    this.#taken.add(key);
    return this.#metadata[key];
  }

  /** Inputs, parameters, attributes and aliases that were never asked for. */
  untouched() {
    const names = [...this.#tensors.keys()].filter((name) => /^(?:in|param)\./.test(name));
    names.push(...Object.keys(this.#metadata).filter((key) => /^(?:attr|alias)\./.test(key)));
    return names.filter((name) => !this.#taken.has(name));
  }

  #take(name, dtypes, ranks) {
    const tensor = this.#tensors.get(name);
    if (tensor === undefined) return undefined;
    this.#taken.add(name);
    if (!dtypes.includes(tensor.dtype)) {
      throw new CaseError(`${name} is ${tensor.dtype}, the adapter handles ${dtypes.join(' and ')}`);
    }
    if (ranks && !ranks.includes(tensor.shape.length)) {
      throw new CaseError(`${name} has rank ${tensor.shape.length}, the adapter handles ${ranks.join(', ')}`);
    }
    return tensor;
  }

  #missing(name) {
    throw new CaseError(`${name} is missing`);
  }
}
