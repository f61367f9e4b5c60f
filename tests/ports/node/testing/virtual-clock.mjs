/** @import { Clock } from '../lib/clock.mjs' */

/** @typedef {{ at: number, callback: () => void }} VirtualTimer */

const TICKS_PER_MS = 1000;

/**
 * A clock for tests: it stands until it is told to go on, and fires timers in their order.
 *
 * @implements {Clock}
 */
export class VirtualClock {
  #now = 0;
  #wallJumps = 0;
  /** In the order of their start. @type {Set<VirtualTimer>} */
  #timers = new Set();
  /** @type {(() => void)[]} */
  #turn = [];

  // What the library calls

  now() {
    return this.#now;
  }

  wallTime() {
    return this.nowMs + this.#wallJumps;
  }

  /**
   * @param {number} delay
   * @param {() => void} callback
   * @returns {VirtualTimer}
   */
  startTimer(delay, callback) {
    if (!(delay >= 0 && delay < Infinity)) throw new RangeError(`a timer's delay can't be ${delay} (TIM-4)`);
    const timer = { at: this.#now + delay, callback };
    this.#timers.add(timer);
    return timer;
  }

  /** @param {unknown} timer */
  stopTimer(timer) {
    this.#timers.delete(/** @type {VirtualTimer} */ (timer));
  }

  keepAlive() {} // no real timer, nothing to keep

  /** @param {() => void} callback */
  nextTurn(callback) {
    this.#turn.push(callback);
  }

  // What tests call

  get nowMs() {
    return this.#now / TICKS_PER_MS;
  }

  get liveTimers() {
    return this.#timers.size;
  }

  /**
   * Lets time pass from deadline to deadline. At each, all timers of that instant fire before anything settles.
   *
   * @param {number} ms
   * @param {() => Promise<void>} [settle] Lets everything go on that can.
   */
  async advance(ms, settle = () => this.settle()) {
    const end = this.#now + ms * TICKS_PER_MS;
    for (let due = this.#nextDue(); due <= end; due = this.#nextDue()) {
      this.#now = Math.max(due, this.#now);
      this.#fireDue();
      await settle();
    }
    this.#now = end;
  }

  /**
   * A blocked event loop: time leaps, and what is overdue fires at its end.
   *
   * @param {number} ms
   * @param {() => Promise<void>} [settle]
   */
  async stall(ms, settle = () => this.settle()) {
    this.#now += ms * TICKS_PER_MS;
    this.#fireDue();
    await settle();
  }

  /** @param {number} ms May be negative. */
  jumpWallClock(ms) {
    this.#wallJumps += ms;
  }

  /** Runs one turn of what was asked for with `nextTurn`. @returns {boolean} Whether there was anything. */
  runTurn() {
    const turn = this.#turn;
    this.#turn = [];
    for (const callback of turn) callback();
    return turn.length > 0;
  }

  /** Lets promises resolve and turns run until no turn is left. */
  async settle() {
    do await new Promise((resolve) => setImmediate(resolve));
    while (this.runTurn());
  }

  #nextDue() {
    let due = Infinity;
    for (const timer of this.#timers) due = Math.min(due, timer.at);
    return due;
  }

  /** Not those that are started meanwhile. Each is taken out before it is called, and may be stopped by another. */
  #fireDue() {
    const due = [...this.#timers].filter((timer) => timer.at <= this.#now);
    due.sort((a, b) => a.at - b.at); // stable: those of one instant in the order of their start
    for (const timer of due) if (this.#timers.delete(timer)) timer.callback();
  }
}
