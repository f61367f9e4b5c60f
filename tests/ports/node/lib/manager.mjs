import { onAbort } from './abort-listeners.mjs';
import { Engine } from './engine.mjs';
import { ManagerClosedError } from './errors.mjs';
import { ancestorsOf } from './nesting.mjs';
import { Request } from './request.mjs';
import { settingsFrom } from './settings.mjs';
import { Ticket } from './ticket.mjs';
import { count, duration, finite, functionOrNone, orNone, signalOrNone, text, texts } from './validation.mjs';

/** @import { Options } from './settings.mjs' */
/** @import { Provider, StatusRow } from './provider.mjs' */
/** @import { Slot } from './slot.mjs' */

/**
 * @typedef {object} RequestOptions
 * @property {string | null} [conversationId] For reports, and for `path`; it groups and limits nothing.
 * @property {number} [promptStartedAt] Older goes first. Default: now, as `Date.now()`.
 */

/**
 * @typedef {object} WaitOptions
 * @property {number | null} [timeoutMs] How long to wait at most; 0: not at all. Default null: without end.
 * @property {AbortSignal | null} [signal] Cancels the wait, in the call of `abort()`.
 * @property {string[]} [path] The conversations within which this request is made, the outermost first.
 * @property {(() => void) | null} [onQueued] Called once, before the call returns, if the request has to wait.
 */

/** Lets each provider have as many requests in flight as its limit says, and the others wait, oldest prompt first. */
export class ConcurrencyManager {
  #engine;
  #clock;

  /** @param {Options} [options] */
  constructor(options = {}) {
    const settings = settingsFrom(options);
    this.#clock = settings.clock;
    this.#engine = new Engine(settings);
    for (const [provider, limit] of settings.limits) this.setLimit(provider, limit);
  }

  // Requests

  /**
   * Waits for a slot. Release it in a `finally`, with `using`, or use `run`.
   *
   * To give up waiting use `signal` or `timeoutMs`. A promise that is merely dropped (in a `Promise.race`) still gets
   * its slot, which is then nobody's until the watchdog comes.
   *
   * @param {string} provider
   * @param {RequestOptions & WaitOptions} [options]
   * @returns {Promise<Slot>}
   */
  async acquire(provider, options) {
    const ticket = this.enqueue(provider, options);
    await ticket.decided;
    return ticket.take();
  }

  /**
   * Everything of `acquire` up to the wait.
   *
   * @param {string} provider
   * @param {RequestOptions & WaitOptions} [options]
   * @returns {Ticket}
   */
  enqueue(provider, options = {}) {
    const { timeoutMs = null, signal = null, path = [], onQueued = null, ...rest } = options;
    this.#refuseIfClosed();
    const timeout = orNone(duration, 'timeoutMs', timeoutMs);
    signalOrNone('signal', signal);
    functionOrNone('onQueued', onQueued);
    const asked = this.#judge(provider, rest);
    const ancestors = ancestorsOf(asked.conversationId, texts('path', path));
    signal?.throwIfAborted(); // no listener is called for a signal that was aborted before
    const request = this.#request(asked);
    request.ancestors = ancestors;

    this.#engine.operate(request.provider, (now) => {
      request.provider.enqueue(request, timeout, onQueued, now);
      // Before any callback runs: one of them may abort.
      if (signal !== null && request.state === 'queued') {
        request.stopListening = onAbort(signal, () => this.#engine.cancel(request));
      }
    });
    const ticket = new Ticket(request, signal);
    // Granted within its own call: the caller has it when the call returns.
    if (request.state === 'held') ticket.take();
    return ticket;
  }

  /**
   * A slot, if `acquire` would get one without waiting.
   *
   * @param {string} provider
   * @param {RequestOptions} [options]
   * @returns {Slot | null}
   */
  tryAcquire(provider, options = {}) {
    this.#refuseIfClosed();
    const request = this.#request(this.#judge(provider, options));
    request.received = true;
    const granted = this.#engine.operate(request.provider, (now) => request.provider.tryGrant(request, now));
    return granted ? request.slot : null;
  }

  /**
   * Runs `work` with a slot.
   *
   * @template T
   * @param {string} provider
   * @param {(slot: Slot) => T} work
   * @param {RequestOptions & WaitOptions} [options]
   * @returns {Promise<Awaited<T>>}
   */
  async run(provider, work, options) {
    const slot = await this.acquire(provider, options);
    try {
      return await work(slot);
    } finally {
      slot.release();
    }
  }

  // Settings of a provider

  /**
   * @param {string} provider
   * @param {number} limit 0 admits nobody.
   */
  setLimit(provider, limit) {
    this.#refuseIfClosed();
    count('limit', limit);
    this.#operate(provider, (it, now) => it.setLimit(limit, now));
  }

  /** @param {string} provider */
  removeLimit(provider) {
    this.#refuseIfClosed();
    this.#operate(provider, (it, now) => it.setLimit(null, now));
  }

  /**
   * @param {string} provider
   * @param {number | null} cooldownMs For releases and reclaims from now on; null: the manager's.
   */
  setCooldown(provider, cooldownMs) {
    this.#refuseIfClosed();
    const cooldown = orNone(duration, 'cooldownMs', cooldownMs);
    this.#operate(provider, (it) => it.setCooldown(cooldown));
  }

  // Pauses

  /**
   * The upstream has answered 429: grants nothing for a while. Takes any `retryAfterMs` (a bad one is as good as none).
   *
   * @param {string} provider
   * @param {unknown} [retryAfterMs]
   */
  reportRateLimit(provider, retryAfterMs) {
    if (this.#engine.closed) return;
    this.#operate(provider, (it, now) => it.reportRateLimit(retryAfterMs, now));
  }

  /** Ends a pause. @param {string} provider */
  resume(provider) {
    this.#refuseIfClosed();
    this.#operate(provider, (it, now) => it.resume(now));
  }

  // Reading

  /**
   * @param {string} provider
   * @returns {StatusRow | null} Null for a provider with nothing to tell.
   */
  status(provider) {
    return this.#operate(provider, (it, now) => (it.isIdle ? null : it.status(now)));
  }

  /** One row for each provider with state, in the order in which they came. @returns {StatusRow[]} */
  statuses() {
    return this.#engine.operateOnAll((providers, now) => {
      return providers.filter((provider) => !provider.isIdle).map((provider) => provider.status(now));
    });
  }

  /** Providers' own limits. @returns {Map<string, number>} */
  limits() {
    /** @type {Map<string, number>} */
    const limits = new Map();
    for (const { name, ownLimit } of this.#engine.providers) if (ownLimit !== null) limits.set(name, ownLimit);
    return limits;
  }

  // The end

  /** Rejects who waits and refuses who comes. Slots that are held may still be released. */
  close() {
    this.#engine.close();
  }

  /**
   * Resolves when the manager is closed and no slot is held any more. Race it with a timer of your own, if you like.
   *
   * @returns {Promise<void>}
   */
  waitClosed() {
    return this.#engine.ended;
  }

  /** Before any validation (CLO-2). */
  #refuseIfClosed() {
    if (this.#engine.closed) throw new ManagerClosedError('the manager is closed');
  }

  /**
   * @template T
   * @param {string} name
   * @param {(provider: Provider, now: number) => T} change
   */
  #operate(name, change) {
    const provider = this.#engine.provider(text('provider', name));
    return this.#engine.operate(provider, (now) => change(provider, now));
  }

  /**
   * @param {string} provider
   * @param {RequestOptions} options
   */
  #judge(provider, { conversationId = null, promptStartedAt = this.#clock.wallTime() }) {
    return {
      provider: text('provider', provider),
      conversationId: orNone(text, 'conversationId', conversationId),
      promptStartedAt: finite('promptStartedAt', promptStartedAt),
    };
  }

  /** @param {{ provider: string, conversationId: string | null, promptStartedAt: number }} asked */
  #request(asked) {
    const provider = this.#engine.provider(asked.provider);
    return new Request(this.#engine, { ...asked, provider, number: this.#engine.nextNumber() });
  }
}
