/** @import { Clock, Timer } from './clock.mjs' */

/**
 * One timer that is armed again and again (TIM-4). It never rings early, whatever the run time does (TIM-2).
 *
 * It may ring for nothing: whoever is rung looks at the clock and decides. So a timer that is set too early may stay,
 * and most changes of a deadline start none.
 */
export class Alarm {
  #clock;
  #ring;
  /** @type {Timer | null} */
  #timer = null;
  #at = Infinity;
  #keepsAlive = false;

  /**
   * @param {Clock} clock
   * @param {() => void} ring
   */
  constructor(clock, ring) {
    this.#clock = clock;
    this.#ring = ring;
  }

  /**
   * Rings at `at`, or at the earlier time that it is set to already.
   *
   * @param {number} at
   * @param {number} now
   */
  set(at, now) {
    if (this.#at <= at) return;
    this.stop();
    this.#at = at;
    this.#arm(at - now);
  }

  stop() {
    if (this.#timer !== null) this.#clock.stopTimer(this.#timer);
    this.#timer = null;
    this.#at = Infinity;
  }

  /**
   * A timer for which nobody waits must not keep a finished process alive; one for which somebody does must.
   *
   * @param {boolean} yes
   */
  keepAlive(yes) {
    if (this.#keepsAlive === yes) return;
    this.#keepsAlive = yes;
    if (this.#timer !== null) this.#clock.keepAlive(this.#timer, yes);
  }

  /** @param {number} delay */
  #arm(delay) {
    this.#timer = this.#clock.startTimer(delay, () => this.#fire());
    this.#clock.keepAlive(this.#timer, this.#keepsAlive);
  }

  #fire() {
    const early = this.#at - this.#clock.now();
    if (early > 0) {
      this.#arm(early);
      return;
    }
    this.#timer = null;
    this.#at = Infinity;
    this.#ring();
  }
}
