import { NotificationLine } from './notification-line.mjs';
import { Provider } from './provider.mjs';
import { Watchdog } from './watchdog.mjs';

/** @import { Request } from './request.mjs' */
/** @import { Settings } from './settings.mjs' */

/**
 * Runs operations: each applies what is due, changes one provider, sees to the timers, and tells what happened, in
 * this order (TIM-3, CAL-2). Arguments are judged by the manager, rules are kept by the provider.
 */
export class Engine {
  #settings;
  #clock;
  #line;
  #watchdog;
  /** @type {Map<string, Provider>} */
  #providers = new Map();
  /** Those with a held slot. @type {Set<Provider>} */
  #holding = new Set();
  /** Those where somebody waits. @type {Set<Provider>} */
  #crowded = new Set();
  #latest = -Infinity;
  #requests = 0;
  #closed = false;
  #announceEnd = () => {};
  /** Resolves when the manager is closed and no slot is held. @type {Promise<void>} */
  ended = new Promise((resolve) => {
    this.#announceEnd = resolve;
  });

  /** @param {Settings} settings */
  constructor(settings) {
    this.#settings = settings;
    this.#clock = settings.clock;
    this.#line = new NotificationLine(settings);
    this.#watchdog = new Watchdog(this.#clock, settings.watchdogInterval, this.now(), () => this.#sweep());
  }

  get closed() {
    return this.#closed;
  }

  /** Never goes back, even if the clock does (TIM-1). */
  now() {
    this.#latest = Math.max(this.#latest, this.#clock.now());
    return this.#latest;
  }

  /** The next arrival number. */
  nextNumber() {
    this.#requests += 1;
    return this.#requests;
  }

  /**
   * A provider that wasn't known, or was forgotten, stands last.
   *
   * @param {string} name
   */
  provider(name) {
    let provider = this.#providers.get(name);
    if (provider === undefined) {
      const wake = () => this.operate(/** @type {Provider} */ (provider), () => {});
      provider = new Provider(name, this.#settings, this.#clock, this.#line, wake);
      this.#providers.set(name, provider);
    }
    return provider;
  }

  /** All that are known, in the order in which they came (ACC-3). */
  get providers() {
    return [...this.#providers.values()];
  }

  /**
   * @template T
   * @param {Provider} provider
   * @param {(now: number) => T} change
   * @returns {T}
   */
  operate(provider, change) {
    return this.#run([provider], change);
  }

  /**
   * One operation, too: it is complete everywhere before anybody is told.
   *
   * @template T
   * @param {(providers: Provider[], now: number) => T} change
   * @returns {T}
   */
  operateOnAll(change) {
    const { providers } = this;
    return this.#run(providers, (now) => change(providers, now));
  }

  /**
   * @template T
   * @param {Provider[]} providers
   * @param {(now: number) => T} change
   * @returns {T}
   */
  #run(providers, change) {
    const now = this.now();
    for (const provider of providers) provider.catchUp(now);
    try {
      return change(now);
    } finally {
      for (const provider of providers) this.#tidy(provider, now);
      this.#tidyTogether(now);
      this.#line.deliver();
    }
  }

  // What callers do with a request. A request that has ended belongs to no provider any more, so its state comes first.

  /** @param {Request} request */
  release(request) {
    if (request.state === 'held') this.operate(request.provider, (now) => request.provider.release(request, now));
  }

  /** @param {Request} request */
  touch(request) {
    if (request.state !== 'held') return;
    this.operate(request.provider, (now) => {
      request.touchedAt = now;
    });
  }

  /** @param {Request} request */
  cancel(request) {
    if (request.isCancellable) this.operate(request.provider, (now) => request.provider.cancel(request, now));
  }

  // What concerns all providers.

  #sweep() {
    const { slotTimeout } = this.#settings;
    if (this.#closed || slotTimeout === null) return;
    this.operateOnAll((providers, now) => {
      for (const provider of providers) provider.reclaimUntouched(slotTimeout, now);
    });
  }

  close() {
    if (this.#closed) return;
    this.operateOnAll((providers, now) => {
      this.#closed = true;
      this.#watchdog.stop();
      for (const provider of providers) provider.close(now);
    });
  }

  /**
   * After every change: a timer if one is needed, no memory that isn't.
   *
   * @param {Provider} provider
   * @param {number} now
   */
  #tidy(provider, now) {
    provider.rearm(now); // one without deadlines has no timer, so a forgotten one acts no more
    if (provider.isIdle) this.#providers.delete(provider.name);
    include(this.#holding, provider, provider.holdsAny);
    include(this.#crowded, provider, provider.queuesAny);
  }

  /** @param {number} now */
  #tidyTogether(now) {
    const isAnyHeld = this.#holding.size > 0;
    if (this.#closed && !isAnyHeld) this.#announceEnd();
    if (!this.#closed && isAnyHeld && this.#settings.slotTimeout !== null) this.#watchdog.watch(now);
    this.#watchdog.keepAlive(this.#crowded.size > 0);
  }
}

/**
 * @template T
 * @param {Set<T>} set
 * @param {T} element
 * @param {boolean} yes
 */
function include(set, element, yes) {
  if (yes) set.add(element);
  else set.delete(element);
}
