// @ts-check

import { TICKS_PER_MS } from './arguments.mjs';

/** @typedef {{at: number, callback: () => void, ref: () => void, unref: () => void}} VirtualTimer */

const nothing = () => {};

/**
 * A clock that only moves when it is told to: no test ever sleeps. It starts at 0.
 *
 * It fires nothing by itself: `fireDue` runs the timers whose time has come, `runTurn` what waits for the event loop's
 * next turn. Who drives it lets promises settle in between, as the real loop would.
 */
export class VirtualClock {
  #now = 0;
  #wallTimeAtZero = 1_700_000_000_000;
  /** @type {Set<VirtualTimer>} */
  #timers = new Set();
  /** @type {(() => void)[]} */
  #turn = [];

  // -- what the limiter sees: the interface `Clock` of system-clock.mjs

  now() {
    return this.#now;
  }

  wallTime() {
    return this.#wallTimeAtZero + this.#now / TICKS_PER_MS;
  }

  /** @param {number} ticks @param {() => void} callback */
  startTimer(ticks, callback) {
    // A run time that is handed such a delay does something else each: an error here finds it at once (TIM-4).
    if (!Number.isInteger(ticks) || ticks < 0) throw new Error(`a timer can't be started with ${ticks} ticks`);
    const timer = { at: this.#now + ticks, callback, ref: nothing, unref: nothing };
    this.#timers.add(timer);
    return timer;
  }

  /** @param {object} timer */
  stopTimer(timer) {
    this.#timers.delete(/** @type {VirtualTimer} */ (timer));
  }

  /** @param {() => void} callback */
  nextTurn(callback) {
    this.#turn.push(callback);
  }

  // -- what the driver sees

  /** How many timers are alive. */
  get liveTimers() {
    return this.#timers.size;
  }

  /** When the next timer is due, in milliseconds; Infinity without one. */
  get nextDueMs() {
    let next = Infinity;
    for (const timer of this.#timers) next = Math.min(next, timer.at);
    return next / TICKS_PER_MS;
  }

  get nowMs() {
    return this.#now / TICKS_PER_MS;
  }

  /** Moves to a time, and fires nothing. @param {number} ms */
  moveToMs(ms) {
    this.#now = ms * TICKS_PER_MS;
  }

  /** The wall clock alone jumps. @param {number} ms */
  jumpWallTime(ms) {
    this.#wallTimeAtZero += ms;
  }

  /** Fires each timer that is due now, the earliest first; not those that start meanwhile. */
  fireDue() {
    const due = [...this.#timers].filter((timer) => timer.at <= this.#now).sort((a, b) => a.at - b.at);
    for (const timer of due) {
      if (this.#timers.delete(timer)) timer.callback(); // it may have been stopped by the one before
    }
  }

  /** One turn of the event loop; false when there is nothing to run. */
  runTurn() {
    const callbacks = this.#turn;
    if (callbacks.length === 0) return false;
    this.#turn = [];
    for (const callback of callbacks) callback();
    return true;
  }
}
