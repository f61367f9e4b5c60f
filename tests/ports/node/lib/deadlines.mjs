import { Alarm } from './alarm.mjs';
import { SortedList } from './sorted-list.mjs';

/** @import { Clock } from './clock.mjs' */

/**
 * @typedef {object} Deadline
 * @property {number} at
 * @property {number} rank What goes first at one instant.
 * @property {number} number The request's arrival number; 0 for the pause, of which there is one.
 * @property {(now: number) => void} apply
 */

/** Room that comes at the instant of a timeout comes in time (CAN-3). */
export const RANK = { cooldown: 0, pause: 1, timeout: 2 };

/** Whatever of one provider ends by itself, in the order in which it is applied (TIM-3), with one timer for all. */
export class Deadlines {
  #alarm;
  /** @type {SortedList<Deadline>} */
  #deadlines = new SortedList((a, b) => a.at - b.at || a.rank - b.rank || a.number - b.number);

  /**
   * @param {Clock} clock
   * @param {() => void} wake Called when something may be due.
   */
  constructor(clock, wake) {
    this.#alarm = new Alarm(clock, wake);
  }

  /** @param {Deadline} deadline */
  add(deadline) {
    this.#deadlines.add(deadline);
  }

  /** @param {Deadline} deadline */
  drop(deadline) {
    this.#deadlines.delete(deadline);
  }

  /**
   * Takes out the first that is due. One at a time: what it does may drop or add others.
   *
   * @param {number} now
   * @returns {Deadline | null}
   */
  takeDue(now) {
    const first = this.#deadlines.first;
    if (first === undefined || first.at > now) return null;
    this.#deadlines.delete(first);
    return first;
  }

  /**
   * @param {number} now
   * @param {boolean} keepAlive
   */
  rearm(now, keepAlive) {
    const first = this.#deadlines.first;
    if (first === undefined) this.#alarm.stop();
    else this.#alarm.set(first.at, now);
    this.#alarm.keepAlive(keepAlive);
  }
}
