/** @import { ObservedEvent, Settings } from './settings.mjs' */

/**
 * What callbacks and the observer are still to be told, first in, first out (CAL-2).
 *
 * An operation changes the state completely and only then has the line delivered, so a callback never sees half an
 * operation. Delivery never nests: what a callback's own calls have to tell goes to the end of the line.
 */
export class NotificationLine {
  #logger;
  #observer;
  /** @type {(() => unknown)[]} */
  #line = [];
  #delivering = false;

  /** @param {Pick<Settings, 'logger' | 'observer'>} settings */
  constructor({ logger, observer }) {
    this.#logger = logger;
    this.#observer = observer;
  }

  /** @param {() => unknown} notification */
  add(notification) {
    this.#line.push(notification);
  }

  /** @param {ObservedEvent} event */
  tell(event) {
    const observer = this.#observer;
    if (observer !== null) this.add(() => observer(event));
  }

  /** @param {string} text */
  warn(text) {
    this.add(() => this.#logger.warn(text));
  }

  deliver() {
    if (this.#delivering) return;
    this.#delivering = true;
    try {
      for (let next = this.#line.shift(); next; next = this.#line.shift()) this.#call(next);
    } finally {
      this.#delivering = false;
    }
  }

  /**
   * A callback that fails changes no outcome (CAL-4), also one that fails later, being async.
   *
   * @param {() => unknown} notification
   */
  #call(notification) {
    /** @param {unknown} error */
    const report = (error) => this.#logger.error('provider-concurrency: a callback failed:', error);
    try {
      const result = /** @type {any} */ (notification());
      if (typeof result?.then === 'function') result.then(undefined, report);
    } catch (error) {
      report(error);
    }
  }
}
