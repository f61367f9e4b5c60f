// @ts-check

import { TICKS_PER_MS } from './arguments.mjs';

/** More than this, and setTimeout fires after 1 ms (with a warning) instead of late. */
const LONGEST_DELAY_MS = 2 ** 31 - 1;

/**
 * What the limiter wants from its surroundings, and all it ever asks: time and timers. `VirtualClock` is the other one.
 *
 * @typedef {object} Timer
 * @property {() => unknown} ref keeps the process alive for this timer (a new timer does)
 * @property {() => unknown} unref doesn't
 *
 * @typedef {object} Clock
 * @property {() => number} now whole ticks (microseconds) of a monotonic clock
 * @property {() => number} wallTime epoch milliseconds; decides nothing
 * @property {(ticks: number, callback: () => void) => Timer} startTimer
 * @property {(timer: Timer) => void} stopTimer
 * @property {(callback: () => void) => void} nextTurn calls back in the event loop's next turn
 */

/**
 * The real clock. Timers may fire early (Node's do, by up to a millisecond; a capped one by years): whoever is called
 * looks at `now` and starts another.
 *
 * @type {Clock}
 */
export const systemClock = {
  now: () => Math.floor(performance.now() * TICKS_PER_MS),
  wallTime: () => Date.now(),
  startTimer: (ticks, callback) => setTimeout(callback, Math.min(Math.ceil(ticks / TICKS_PER_MS), LONGEST_DELAY_MS)),
  stopTimer: (timer) => clearTimeout(/** @type {NodeJS.Timeout} */ (timer)),
  nextTurn: (callback) => void setImmediate(callback),
};
