import { Alarm } from './alarm.mjs';

/** @import { Clock } from './clock.mjs' */

/** So many turns after its timer a sweep judges: time for what a blocked loop held back to show life (WAT-1). */
const TURNS_BEFORE_SWEEP = 8;

/** Announces sweeps, at creation + k * interval, as long as it is asked to. */
export class Watchdog {
  #clock;
  #interval;
  #createdAt;
  #sweep;
  #alarm;

  /**
   * @param {Clock} clock
   * @param {number} interval
   * @param {number} createdAt
   * @param {() => void} sweep
   */
  constructor(clock, interval, createdAt, sweep) {
    this.#clock = clock;
    this.#interval = interval;
    this.#createdAt = createdAt;
    this.#sweep = sweep;
    this.#alarm = new Alarm(clock, () => this.#waitTurns(TURNS_BEFORE_SWEEP));
  }

  /**
   * Announces the next sweep, unless one is announced. There is no need to take it back when the last slot is
   * released: a sweep that finds nothing announces no other.
   *
   * @param {number} now
   */
  watch(now) {
    const passed = Math.floor((now - this.#createdAt) / this.#interval);
    this.#alarm.set(this.#createdAt + (passed + 1) * this.#interval, now);
  }

  /** @param {boolean} yes */
  keepAlive(yes) {
    this.#alarm.keepAlive(yes);
  }

  stop() {
    this.#alarm.stop();
  }

  /** @param {number} turns */
  #waitTurns(turns) {
    if (turns === 0) this.#sweep();
    else this.#clock.nextTurn(() => this.#waitTurns(turns - 1));
  }
}
