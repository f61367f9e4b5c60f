// @ts-check

/**
 * What a good argument is (SPEC.md, "Validation"), and the errors of the limiter.
 *
 * Everything is judged at the edge, before any change; an error names the argument and its value. Durations come in
 * as milliseconds and go on as whole ticks, rounded up, so that a positive one is at least one tick.
 */

/** Ticks of a millisecond: all decisions are made in whole microseconds, which stay exact in a double for 285 years. */
export const TICKS_PER_MS = 1000;

/** The longest legal duration: 1e9 seconds. */
const LONGEST_MS = 1e12;

/** The manager is closed: for good, so trying again doesn't help. */
export class ManagerClosedError extends Error {
  constructor() {
    super('the manager is closed');
    this.name = 'ManagerClosedError';
  }
}

/** As many requests wait at the provider as `maxQueued` allows. Nothing has changed. */
export class QueueFullError extends Error {
  /** @param {string} provider @param {number} maxQueued */
  constructor(provider, maxQueued) {
    super(`the queue of ${JSON.stringify(provider)} is full: ${maxQueued} wait already`);
    this.name = 'QueueFullError';
  }
}

/** With `nested: 'raise'`: every slot is held by a conversation around this request. Nothing has changed (NST-1). */
export class NestedAcquireError extends Error {
  /** @param {string} provider */
  constructor(provider) {
    super(`every slot of ${JSON.stringify(provider)} is held by a conversation that waits for its children`);
    this.name = 'NestedAcquireError';
  }
}

/** The request waited for as long as its `timeout` says and was not granted. */
export class AcquireTimeoutError extends Error {
  /** @param {string} provider @param {number} timeoutMs */
  constructor(provider, timeoutMs) {
    super(`no slot of ${JSON.stringify(provider)} within ${timeoutMs} ms`);
    this.name = 'AcquireTimeoutError';
  }
}

/** An argument of the wrong type. `code` tells it from a TypeError that is somebody's mistake in programming. */
export class ArgumentTypeError extends TypeError {
  code = 'ERR_INVALID_ARG_TYPE';
}

/** An argument of the right type with a value that isn't allowed. */
export class ArgumentValueError extends RangeError {
  code = 'ERR_OUT_OF_RANGE';
}

/** @param {unknown} value */
function show(value) {
  return typeof value === 'string' ? JSON.stringify(value) : String(value);
}

/** @param {string} name @param {unknown} value @returns {string} */
export function readProvider(name, value) {
  if (typeof value !== 'string') throw new ArgumentTypeError(`${name} must be a string, not ${show(value)}`);
  return value;
}

/** @param {string} name @param {unknown} value @returns {string | null} */
export function readOptionalText(name, value) {
  return value === null || value === undefined ? null : readProvider(name, value);
}

/** @param {string} name @param {unknown} value @returns {Set<string>} */
export function readTexts(name, value) {
  if (!Array.isArray(value)) throw new ArgumentTypeError(`${name} must be an array of strings, not ${show(value)}`);
  return new Set(value.map((each) => readProvider(name, each)));
}

/** @param {string} name @param {unknown} value @returns {'queue' | 'raise'} */
export function readNested(name, value) {
  if (value === 'queue' || value === 'raise') return value;
  throw new ArgumentTypeError(`${name} must be 'queue' or 'raise', not ${show(value)}`);
}

/** A finite number of any sign, fractions included. @param {string} name @param {unknown} value @returns {number} */
export function readFinite(name, value) {
  if (typeof value !== 'number') throw new ArgumentTypeError(`${name} must be a number, not ${show(value)}`);
  if (!Number.isFinite(value)) throw new ArgumentValueError(`${name} must be finite, not ${show(value)}`);
  return value;
}

/** A whole number >= 0. @param {string} name @param {unknown} value @returns {number} */
export function readCount(name, value) {
  if (!Number.isInteger(value)) throw new ArgumentTypeError(`${name} must be a whole number, not ${show(value)}`);
  const count = /** @type {number} */ (value);
  if (count < 0) throw new ArgumentValueError(`${name} must be at least 0, not ${count}`);
  return count;
}

/** A duration >= 0, in ticks. @param {string} name @param {unknown} value @returns {number} */
export function readDuration(name, value) {
  const ms = readFinite(name, value);
  if (ms < 0 || ms > LONGEST_MS) {
    throw new ArgumentValueError(`${name} must be from 0 to ${LONGEST_MS} ms, not ${show(value)}`);
  }
  return Math.ceil(ms * TICKS_PER_MS);
}

/** A duration > 0, in ticks. @param {string} name @param {unknown} value @returns {number} */
export function readPositiveDuration(name, value) {
  const ticks = readDuration(name, value);
  if (ticks === 0) throw new ArgumentValueError(`${name} must be more than 0 ms`);
  return ticks;
}

/**
 * `read(name, value)`, or null for null and undefined.
 *
 * @template T
 * @param {(name: string, value: unknown) => T} read
 * @param {string} name
 * @param {unknown} value
 * @returns {T | null}
 */
export function readOptional(read, name, value) {
  return value === null || value === undefined ? null : read(name, value);
}

/**
 * How long a 429 pauses (PAU-2). Nothing is refused here: this runs in somebody's error path.
 *
 * @param {unknown} retryAfter as it came, in milliseconds
 * @param {{defaultPause: number, minPause: number, maxPause: number}} settings in ticks
 * @param {number} cooldown the provider's cooldown in force, in ticks
 * @returns {{requested: number | null, applied: number}} what was asked for, in ms as given; what is done, in ticks
 */
export function readRetryAfter(retryAfter, settings, cooldown) {
  const isNumber = typeof retryAfter === 'number';
  const isUsable = isNumber && retryAfter >= 0; // NaN isn't
  const wanted = isUsable ? Math.ceil(retryAfter * TICKS_PER_MS) : settings.defaultPause;
  return {
    requested: isNumber && Number.isFinite(retryAfter) ? retryAfter : null,
    applied: Math.min(Math.max(wanted, settings.minPause, cooldown), settings.maxPause),
  };
}

/**
 * The numbers among the options, in ticks where they are durations.
 *
 * @param {import('./types.mjs').ManagerOptions} options
 */
export function readSettings({
  releaseCooldown = 200,
  slotTimeout = 300_000,
  watchdogInterval = 30_000,
  defaultPause = 30_000,
  minPause = 1000,
  maxPause = 21_600_000,
  maxQueued = null,
  defaultLimit = null,
  nested = 'queue',
}) {
  const settings = {
    releaseCooldown: readDuration('releaseCooldown', releaseCooldown),
    slotTimeout: readOptional(readPositiveDuration, 'slotTimeout', slotTimeout),
    watchdogInterval: readPositiveDuration('watchdogInterval', watchdogInterval),
    defaultPause: readPositiveDuration('defaultPause', defaultPause),
    minPause: readDuration('minPause', minPause),
    maxPause: readPositiveDuration('maxPause', maxPause),
    maxQueued: readOptional(readCount, 'maxQueued', maxQueued),
    defaultLimit: readOptional(readCount, 'defaultLimit', defaultLimit),
    nested: readNested('nested', nested),
  };
  if (!(settings.minPause <= settings.defaultPause && settings.defaultPause <= settings.maxPause)) {
    const given = `${minPause}, ${defaultPause}, ${maxPause}`;
    throw new ArgumentValueError(`minPause <= defaultPause <= maxPause is wanted, not ${given}`);
  }
  return settings;
}
