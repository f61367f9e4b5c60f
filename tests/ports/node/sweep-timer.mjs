// @ts-check

/** A sweep comes so many turns of the event loop after its timer: a stalled holder gets its chance to touch (WAT-1). */
const TURNS_BEFORE_SWEEP = 8;

/**
 * When the watchdog looks: at the points of a grid that begins when the manager is made (WAT-1).
 *
 * One timer at most, started when it is wanted; missed points are not made up for. All times are ticks.
 */
export class SweepTimer {
  #clock;
  #createdAt;
  #interval;
  #sweep;
  /** @type {import('./system-clock.mjs').Timer | null} */
  #timer = null;
  #isComing = false;
  #isStopped = false;

  /**
   * @param {import('./system-clock.mjs').Clock} clock
   * @param {number} createdAt
   * @param {number} interval
   * @param {() => void} sweep
   */
  constructor(clock, createdAt, interval, sweep) {
    this.#clock = clock;
    this.#createdAt = createdAt;
    this.#interval = interval;
    this.#sweep = sweep;
  }

  /** Sees to it that the next point's sweep comes. @param {number} now */
  start(now) {
    if (this.#isStopped || this.#isComing || this.#timer !== null) return;
    const points = Math.floor((now - this.#createdAt) / this.#interval);
    this.#startFor(this.#createdAt + (points + 1) * this.#interval, now);
  }

  /** Whether the process is to live on for the sweep. @param {boolean} isAwaited */
  keepAlive(isAwaited) {
    if (isAwaited) this.#timer?.ref();
    else this.#timer?.unref();
  }

  /** For good (CLO-1). */
  stop() {
    this.#isStopped = true;
    if (this.#timer !== null) this.#clock.stopTimer(this.#timer);
    this.#timer = null;
  }

  /** @param {number} at @param {number} now */
  #startFor(at, now) {
    this.#timer = this.#clock.startTimer(at - now, () => {
      this.#timer = null;
      const firedAt = this.#clock.now();
      if (firedAt < at) {
        this.#startFor(at, firedAt); // early (TIM-2)
      } else {
        this.#isComing = true;
        this.#come(TURNS_BEFORE_SWEEP);
      }
    });
  }

  /** @param {number} turns */
  #come(turns) {
    if (turns > 0) {
      this.#clock.nextTurn(() => this.#come(turns - 1));
      return;
    }
    this.#isComing = false;
    if (!this.#isStopped) this.#sweep();
  }
}
