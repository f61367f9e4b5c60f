// The only file that knows real time. Everything else is given a Clock and counts in its ticks.

/**
 * A timer as its clock made it; nobody else looks inside.
 * @typedef {unknown} Timer
 */

/**
 * @typedef {object} Clock
 * @property {() => number} now Whole ticks (microseconds) of a monotonic clock.
 * @property {() => number} wallTime Epoch milliseconds. Only the default prompt time is read from it.
 * @property {(delay: number, callback: () => void) => Timer} startTimer After so many ticks; may be early.
 * @property {(timer: Timer) => void} stopTimer
 * @property {(timer: Timer, yes: boolean) => void} keepAlive Whether the process stays alive for this timer.
 * @property {(callback: () => void) => void} nextTurn In the next turn of the event loop.
 */

/** Microseconds: finer than any timer, and the longest duration (1e12 ms) is still exact in a double. */
const TICKS_PER_MS = 1000;

/** Node makes 1 ms of every longer delay. A timer that fires early is armed again, so capping is enough. */
const LONGEST_DELAY_MS = 2 ** 31 - 1;

/** Rounds up: nothing may end early. @param {number} ms */
export const toTicks = (ms) => Math.ceil(ms * TICKS_PER_MS);

/** @param {number} ticks */
export const toMs = (ticks) => ticks / TICKS_PER_MS;

/** @type {Clock} */
export const realClock = {
  now: () => Math.floor(performance.now() * TICKS_PER_MS),
  wallTime: () => Date.now(),
  startTimer: (delay, callback) => setTimeout(callback, Math.min(Math.ceil(toMs(delay)), LONGEST_DELAY_MS)),
  stopTimer: (timer) => clearTimeout(/** @type {NodeJS.Timeout} */ (timer)),
  keepAlive: (timer, yes) => {
    const timeout = /** @type {NodeJS.Timeout} */ (timer);
    if (yes) timeout.ref();
    else timeout.unref();
  },
  nextTurn: (callback) => void setImmediate(callback),
};
