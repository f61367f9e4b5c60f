// @ts-check

/**
 * What callbacks are still to be told: first in, first out, one after another (CAL-2).
 *
 * A callback may call the limiter: that call takes full effect at once, and what it has to tell goes to the end of the
 * line (CAL-3). A callback that fails is reported once and changes no outcome (CAL-4).
 */
export class Notifications {
  /** @type {(() => unknown)[]} */
  #line = [];
  #isDelivering = false;
  #logger;

  /** @param {import('./types.mjs').Logger} logger */
  constructor(logger) {
    this.#logger = logger;
  }

  /** @param {() => unknown} call */
  add(call) {
    this.#line.push(call);
  }

  /** Never nests: called from inside a callback it leaves the rest to the loop that called that one. */
  deliver() {
    if (this.#isDelivering) return;
    this.#isDelivering = true;
    for (let next = 0; next < this.#line.length; next += 1) {
      try {
        const result = this.#line[next]();
        // An async callback fails later; without this the process would end of an unhandled rejection.
        if (result instanceof Promise) result.catch((error) => this.#report(error));
      } catch (error) {
        this.#report(error);
      }
    }
    this.#line.length = 0;
    this.#isDelivering = false;
  }

  /** @param {unknown} error */
  #report(error) {
    try {
      this.#logger.error('a callback of the concurrency manager failed:', error);
    } catch {
      // There is nobody left to tell, and no outcome is to depend on a logger.
    }
  }
}
