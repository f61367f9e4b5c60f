// Arguments are judged at the edge, before any change (SPEC.md, "Validation"). Each judge returns the value to use.
// They ask for what is good, never for what is bad: NaN passes every `x < 0`.

import { inspect } from 'node:util';

import { toTicks } from './clock.mjs';
import { InvalidTypeError, InvalidValueError } from './errors.mjs';

/** 1e9 seconds, the longest legal duration. */
const LONGEST_MS = 1e12;

/**
 * @param {string} name
 * @param {unknown} value
 * @returns {string}
 */
export function text(name, value) {
  if (typeof value !== 'string') throw new InvalidTypeError(`${name} must be a string, not ${inspect(value)}`);
  return value;
}

/**
 * @param {string[]} choices
 * @param {string} name
 * @param {unknown} value
 * @returns {string}
 */
export function oneOf(choices, name, value) {
  const given = text(name, value);
  if (!choices.includes(given)) throw new InvalidValueError(`${name} must be one of ${choices}, not ${inspect(value)}`);
  return given;
}

/**
 * @param {string} name
 * @param {unknown} value
 * @returns {string[]}
 */
export function texts(name, value) {
  if (!Array.isArray(value)) throw new InvalidTypeError(`${name} must be an array, not ${inspect(value)}`);
  return value.map((each) => text(`each of ${name}`, each));
}

/**
 * @param {string} name
 * @param {unknown} value
 * @returns {number}
 */
export function finite(name, value) {
  const given = number(name, value);
  if (!Number.isFinite(given)) throw new InvalidValueError(`${name} must be finite, not ${inspect(value)}`);
  return given;
}

/**
 * A whole number from 0 on.
 *
 * @param {string} name
 * @param {unknown} value
 * @returns {number}
 */
export function count(name, value) {
  const given = number(name, value);
  if (!Number.isInteger(given)) throw new InvalidTypeError(`${name} must be a whole number, not ${inspect(value)}`);
  if (!(given >= 0)) throw new InvalidValueError(`${name} must be at least 0, not ${inspect(value)}`);
  return given;
}

/**
 * Milliseconds from 0 on.
 *
 * @param {string} name
 * @param {unknown} value
 * @returns {number} Ticks.
 */
export function duration(name, value) {
  const given = number(name, value);
  if (!(given >= 0 && given <= LONGEST_MS)) {
    throw new InvalidValueError(`${name} must be from 0 to ${LONGEST_MS} ms, not ${inspect(value)}`);
  }
  return toTicks(given);
}

/**
 * Milliseconds above 0.
 *
 * @param {string} name
 * @param {unknown} value
 * @returns {number} Ticks.
 */
export function positiveDuration(name, value) {
  const ticks = duration(name, value);
  if (ticks === 0) throw new InvalidValueError(`${name} must be above 0`);
  return ticks;
}

/**
 * Lets null through, which means "none".
 *
 * @template T
 * @param {(name: string, value: unknown) => T} judge
 * @param {string} name
 * @param {unknown} value
 * @returns {T | null}
 */
export function orNone(judge, name, value) {
  return value === null ? null : judge(name, value);
}

/**
 * @param {string} name
 * @param {unknown} value
 */
export function signalOrNone(name, value) {
  if (value === null || value instanceof AbortSignal) return value;
  throw new InvalidTypeError(`${name} must be an AbortSignal, not ${inspect(value)}`);
}

/**
 * @param {string} name
 * @param {unknown} value
 */
export function functionOrNone(name, value) {
  if (value === null || typeof value === 'function') return /** @type {any} */ (value);
  throw new InvalidTypeError(`${name} must be a function, not ${inspect(value)}`);
}

/**
 * @param {string} name
 * @param {unknown} value
 */
function number(name, value) {
  if (typeof value !== 'number') throw new InvalidTypeError(`${name} must be a number, not ${inspect(value)}`);
  return value;
}
