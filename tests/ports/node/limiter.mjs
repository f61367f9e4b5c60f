// @ts-check

/**
 * A per-provider concurrency limiter for LLM APIs: the upstream never sees more than the limit, nobody waits while
 * there is room, and nothing is forgotten. It keeps the rules of SPEC.md, whose ids stand in the comments.
 *
 *     const manager = new ConcurrencyManager({ limits: { umans: 3 } });
 *     const answer = await manager.withSlot('umans', { conversationId: 'c9', signal }, async (slot) => {
 *       const response = await fetch(url, { signal });
 *       if (response.status === 429) manager.reportRateLimit('umans', 5000);
 *       return response.json();
 *     });
 *
 * How it works:
 *
 * - A request is `queued`, `held`, `cooling`, `reclaimed`, and ends as `free`, `cancelled`, `timed_out` or `rejected`.
 *   `#move` is the only place where that changes. Whatever is held, cooling or reclaimed is in flight.
 * - `#admit` is the only place where a queued request is granted (ADM-2). It runs after everything that makes room.
 * - An operation enters a provider (what is due is applied first, by deadline), changes its state completely, and
 *   leaves it: timers are set, and then, last, callbacks are told, one after another (CAL-2).
 * - Timers only wake (PAU-5, TIM-2): what has come is decided by the clock, in whole microseconds.
 * - A grant takes its slot at once (ADM-3). Its caller receives it when the promise's continuation runs; a signal that
 *   aborts in between gives the slot back (CAN-2).
 *
 * All durations in options and statuses are milliseconds. The code is synchronous except for `acquire`, `withSlot` and
 * `waitClosed`, so nothing ever runs in the middle of a change of state.
 */

import { setMaxListeners } from 'node:events';

import {
  ManagerClosedError,
  NestedAcquireError,
  QueueFullError,
  TICKS_PER_MS,
  readCount,
  readDuration,
  readFinite,
  readOptional,
  readOptionalText,
  readProvider,
  readRetryAfter,
  readSettings,
  readTexts,
} from './arguments.mjs';
import { Notifications } from './notifications.mjs';
import { Provider, Request, Ticket } from './requests.mjs';
import { SweepTimer } from './sweep-timer.mjs';
import { systemClock } from './system-clock.mjs';

export {
  AcquireTimeoutError,
  ArgumentTypeError,
  ArgumentValueError,
  ManagerClosedError,
  NestedAcquireError,
  QueueFullError,
} from './arguments.mjs';
export { Slot, Ticket } from './requests.mjs';

/**
 * @typedef {import('./types.mjs').AcquireOptions} AcquireOptions
 * @typedef {import('./types.mjs').ManagerEvent} ManagerEvent
 * @typedef {import('./types.mjs').ManagerOptions} ManagerOptions
 * @typedef {import('./types.mjs').SlotEvent} SlotEvent
 * @typedef {import('./types.mjs').SlotState} SlotState
 * @typedef {import('./types.mjs').Status} Status
 * @typedef {import('./types.mjs').WaitOptions} WaitOptions
 */

export class ConcurrencyManager {
  /** @type {Map<string, Provider>} In the order in which they came. */
  #providers = new Map();
  #settings;
  #clock;
  #logger;
  #onReclaim;
  #onPause;
  #observer;

  #createdAt;
  /** The time of the running operation, in ticks. It never goes back, whatever the clock does (TIM-1). */
  #now;
  #arrivals = 0;
  #isClosed = false;
  /** @type {(() => void)[]} Called when a closed manager holds nothing any more. */
  #waitsForEmptiness = [];

  #notifications;
  #sweepTimer;
  #heldCount = 0;
  #queuedCount = 0;
  /** When so many providers are known, those that have become idle unnoticed are forgotten. */
  #crowd = 64;

  #slotOperations = {
    release: (/** @type {Request} */ request) => this.#release(request),
    touch: (/** @type {Request} */ request) => this.#touch(request),
  };

  /** @param {ManagerOptions} [options] */
  constructor(options = {}) {
    this.#settings = readSettings(options);
    const limits = Object.entries(options.limits ?? {}).map(
      ([name, limit]) => /** @type {const} */ ([name, readCount(`limits[${JSON.stringify(name)}]`, limit)]),
    );
    this.#clock = options.clock ?? systemClock;
    this.#logger = options.logger ?? console;
    this.#notifications = new Notifications(this.#logger);
    this.#onReclaim = options.onReclaim ?? null;
    this.#onPause = options.onPause ?? null;
    this.#observer = options.observer ?? null;
    this.#createdAt = this.#now = this.#clock.now();
    const sweep = () => this.#sweep();
    this.#sweepTimer = new SweepTimer(this.#clock, this.#now, this.#settings.watchdogInterval, sweep);
    for (const [name, limit] of limits) this.setLimit(name, limit);
  }

  // -- requests --------------------------------------------------------------------------------------------------

  /**
   * Waits for a slot; the oldest prompt goes first.
   *
   * Rejects with the signal's reason when that aborts, with AcquireTimeoutError, QueueFullError, NestedAcquireError or
   * ManagerClosedError.
   *
   * @param {string} provider
   * @param {AcquireOptions & WaitOptions} [options]
   * @returns {Promise<import('./requests.mjs').Slot>}
   */
  async acquire(provider, options) {
    return this.enqueue(provider, options).wait();
  }

  /**
   * Runs `work` with a slot and releases it, whatever comes of the work.
   *
   * @template T
   * @param {string} provider
   * @param {AcquireOptions & WaitOptions} options
   * @param {(slot: import('./requests.mjs').Slot) => T | Promise<T>} work
   * @returns {Promise<T>}
   */
  async withSlot(provider, options, work) {
    const slot = await this.acquire(provider, options);
    try {
      return await work(slot);
    } finally {
      slot.release();
    }
  }

  /**
   * The first half of `acquire`: everything that happens before it waits. Throws when the request is refused.
   *
   * @param {string} name
   * @param {AcquireOptions & WaitOptions} [options]
   * @returns {Ticket}
   */
  enqueue(name, options = {}) {
    this.#refuseIfClosed();
    readProvider('provider', name);
    const timeout = readOptional(readDuration, 'timeout', options.timeout);
    const told = this.#readRequest(options);
    const ancestors = findAncestors(told.conversationId, options.path ?? []);
    const signal = options.signal ?? null;
    signal?.throwIfAborted(); // a signal that has aborted before tells nobody any more

    const provider = this.#enter(name);
    const isGranted = this.#canGrantAtOnce(provider);
    if (!isGranted && timeout !== 0 && this.#isQueueFull(provider)) {
      this.#leave(provider);
      throw new QueueFullError(name, /** @type {number} */ (this.#settings.maxQueued)); // ADM-7
    }
    if (!isGranted && timeout !== 0 && this.#settings.nested === 'raise' && ancestors.size > 0) {
      if (this.#isSelfBlocked(provider, ancestors)) {
        this.#leave(provider);
        throw new NestedAcquireError(name); // NST-1
      }
    }
    const request = this.#makeRequest(provider, { ...told, timeout: options.timeout ?? 0 });
    if (isGranted) {
      this.#grant(request);
    } else if (timeout === 0) {
      this.#move(request, 'timed_out', 'timed_out');
    } else {
      request.ancestors = ancestors;
      this.#queueUp(request, timeout, signal, options.onQueued);
    }
    this.#leave(provider);
    // Granted inside its own call, at once or by its own onQueued: the caller has it when the call returns.
    if (request.state === 'held') request.receive();
    return new Ticket(request);
  }

  /**
   * A slot if `acquire` would grant one at once, else null (ADM-8).
   *
   * @param {string} name
   * @param {AcquireOptions} [options]
   * @returns {import('./requests.mjs').Slot | null}
   */
  tryAcquire(name, options = {}) {
    this.#refuseIfClosed();
    readProvider('provider', name);
    const told = this.#readRequest(options);
    const provider = this.#enter(name);
    if (!this.#canGrantAtOnce(provider)) {
      this.#leave(provider);
      return null;
    }
    const request = this.#makeRequest(provider, { ...told, timeout: 0 });
    this.#grant(request);
    request.receive();
    this.#leave(provider);
    return request.slot;
  }

  // -- settings and pauses ---------------------------------------------------------------------------------------

  /** @param {string} name @param {number} limit a whole number; 0 admits nobody (LIM-1) */
  setLimit(name, limit) {
    this.#refuseIfClosed();
    readProvider('provider', name);
    readCount('limit', limit);
    this.#changeLimit(name, limit);
  }

  /** Takes the provider's own limit away, and nothing else (LIM-3). @param {string} name */
  removeLimit(name) {
    this.#refuseIfClosed();
    readProvider('provider', name);
    this.#changeLimit(name, null);
  }

  /**
   * For releases and reclaims from now on (ACC-4).
   *
   * @param {string} name
   * @param {number | null} cooldown null: the manager's
   */
  setCooldown(name, cooldown) {
    this.#refuseIfClosed();
    readProvider('provider', name);
    const ticks = readOptional(readDuration, 'cooldown', cooldown);
    const provider = this.#enter(name);
    provider.cooldown = ticks;
    this.#leave(provider);
  }

  /**
   * The upstream answered 429: nothing is granted for a while. Never throws for `retryAfter` (PAU-2).
   *
   * @param {string} name
   * @param {unknown} [retryAfter] milliseconds; anything else means the default
   */
  reportRateLimit(name, retryAfter) {
    if (this.#isClosed) return; // CLO-2: no error either
    readProvider('provider', name);
    const provider = this.#enter(name);
    const { requested, applied } = readRetryAfter(retryAfter, this.#settings, this.#cooldownOf(provider));
    this.#tellObserver({ event: 'paused', at: this.#atMs(), provider: name, requested, applied: toMs(applied) });
    const until = this.#now + applied;
    if (provider.pausedUntil === null || until > provider.pausedUntil) {
      provider.pausedUntil = until;
      const onPause = this.#onPause;
      if (applied > 0 && onPause !== null) this.#notifications.add(() => onPause(name, toMs(applied)));
      this.#applyDue(provider); // a pause of 0 ends inside the call (PAU-5)
    }
    this.#leave(provider);
  }

  /** Ends a pause now (PAU-5). @param {string} name */
  resume(name) {
    this.#refuseIfClosed();
    readProvider('provider', name);
    const provider = this.#enter(name);
    if (provider.pausedUntil !== null) {
      this.#endPause(provider);
      this.#admit(provider);
    }
    this.#leave(provider);
  }

  // -- what can be seen ------------------------------------------------------------------------------------------

  /** Null for a provider without state (ACC-3). @param {string} name @returns {Status | null} */
  status(name) {
    readProvider('provider', name);
    const provider = this.#enter(name);
    const status = provider.isIdle ? null : this.#describe(provider);
    this.#leave(provider);
    return status;
  }

  /** All providers with state, in the order in which they came. @returns {Status[]} */
  statuses() {
    const providers = this.#enterAll();
    const statuses = providers.filter((provider) => !provider.isIdle).map((provider) => this.#describe(provider));
    this.#leaveAll(providers);
    return statuses;
  }

  /** The providers' own limits. @returns {Map<string, number>} */
  limits() {
    /** @type {Map<string, number>} */
    const limits = new Map();
    for (const { name, limit } of this.#providers.values()) {
      if (limit !== null) limits.set(name, limit);
    }
    return limits;
  }

  get closed() {
    return this.#isClosed;
  }

  // -- close -----------------------------------------------------------------------------------------------------

  /** For good: who waits is rejected, what cools is free, no timer is left. Held slots are their holders' (CLO-1). */
  close() {
    if (this.#isClosed) return;
    const providers = this.#enterAll();
    this.#isClosed = true;
    for (const provider of providers) {
      for (const request of provider.queue.sorted()) this.#move(request, 'rejected', 'rejected');
      for (const request of provider.deadlines.sorted()) this.#move(request, 'free', 'recycled');
      provider.pausedUntil = null;
      this.#stopTimer(provider);
    }
    this.#sweepTimer.stop();
    this.#tellIfEmpty();
    this.#leaveAll(providers);
  }

  /** Returns when no slot is held any more; rejects when `signal` aborts. @param {{signal?: AbortSignal}} [options] */
  async waitClosed({ signal } = {}) {
    signal?.throwIfAborted();
    if (this.#isClosed && this.#heldCount === 0) return;
    await new Promise((resolve, reject) => {
      const onAbort = () => reject(signal?.reason);
      signal?.addEventListener('abort', onAbort, { once: true });
      this.#waitsForEmptiness.push(() => {
        signal?.removeEventListener('abort', onAbort);
        resolve(undefined);
      });
    });
  }

  // -- the frame of every operation ------------------------------------------------------------------------------

  #refuseIfClosed() {
    if (this.#isClosed) throw new ManagerClosedError(); // before any validation (CLO-2)
  }

  #readClock() {
    this.#now = Math.max(this.#now, this.#clock.now());
  }

  /** The provider, with all that is due applied (TIM-3). Every operation begins here. @param {string} name */
  #enter(name) {
    this.#readClock();
    const known = this.#providers.get(name);
    if (known !== undefined) {
      this.#applyDue(known);
      if (!known.isIdle) return known;
      this.#forget(known); // it comes anew, and stands behind those that came meanwhile
    }
    if (this.#providers.size >= this.#crowd) this.#forgetTheIdle();
    const provider = new Provider(name);
    this.#providers.set(name, provider);
    return provider;
  }

  /** @param {Provider} provider */
  #leave(provider) {
    this.#leaveAll([provider]);
  }

  /** @returns {Provider[]} */
  #enterAll() {
    this.#readClock();
    const providers = [...this.#providers.values()];
    for (const provider of providers) this.#applyDue(provider);
    return providers;
  }

  /** The other end: state is complete, so timers are set and callbacks are told. @param {Provider[]} providers */
  #leaveAll(providers) {
    for (const provider of providers) this.#putAway(provider);
    if (this.#heldCount > 0 && this.#settings.slotTimeout !== null) this.#sweepTimer.start(this.#now);
    this.#sweepTimer.keepAlive(this.#queuedCount > 0); // somebody may wait for what the watchdog takes away
    this.#notifications.deliver();
  }

  /** @param {Provider} provider */
  #putAway(provider) {
    if (provider.isIdle) this.#forget(provider);
    else this.#armTimer(provider);
  }

  /** @param {Provider} provider */
  #forget(provider) {
    this.#stopTimer(provider);
    this.#providers.delete(provider.name);
  }

  /** Without observer and waiters no timer tells when a cooldown is over, so somebody must look now and then. */
  #forgetTheIdle() {
    for (const provider of this.#enterAll()) this.#putAway(provider);
    this.#crowd = Math.max(64, 2 * this.#providers.size);
  }

  // -- state -----------------------------------------------------------------------------------------------------

  /**
   * The one place where a request changes its state, and every way it can: see "Life of a slot" in SPEC.md.
   *
   * @param {Request} request
   * @param {SlotState} to
   * @param {SlotEvent} event
   */
  #move(request, to, event) {
    const { provider, state: from } = request;
    if (request.deadline !== null) {
      provider.deadlines.remove(request); // before the state changes: it is part of the order
      request.deadline = null;
    }
    if (from === 'queued') {
      provider.queue.remove(request);
      this.#queuedCount -= 1;
      request.wake();
    } else if (from === 'held') {
      provider.held.delete(request);
      this.#heldCount -= 1;
    }
    if (from in provider.counts) provider.counts[/** @type {keyof Provider['counts']} */ (from)] -= 1;
    request.state = to;
    if (to in provider.counts) provider.counts[/** @type {keyof Provider['counts']} */ (to)] += 1;
    if (to === 'queued') {
      provider.queue.add(request);
      this.#queuedCount += 1;
    } else if (to === 'held') {
      provider.held.add(request);
      this.#heldCount += 1;
    } else if (to === 'timed_out' || to === 'rejected') {
      request.stopListening();
    }
    if (from === 'held') this.#tellIfEmpty();
    const { number, conversationId } = request;
    this.#tellObserver({ event, at: this.#atMs(), provider: provider.name, request: number, conversationId });
  }

  /**
   * @param {Provider} provider
   * @param {{conversationId: string | null, promptStartedAt: number, timeout: number}} told
   */
  #makeRequest(provider, told) {
    this.#arrivals += 1; // before any callback (ORD-1)
    return new Request(provider, this.#arrivals, told, this.#slotOperations);
  }

  /** @param {Request} request @param {number} deadline */
  #setDeadline(request, deadline) {
    request.deadline = deadline;
    request.provider.deadlines.add(request);
  }

  /** @param {Request} request */
  #grant(request) {
    this.#move(request, 'held', 'granted');
    request.touchedAt = this.#now; // WAT-2
  }

  /**
   * @param {Request} request
   * @param {number | null} timeout in ticks
   * @param {AbortSignal | null} signal
   * @param {(() => unknown) | undefined} onQueued
   */
  #queueUp(request, timeout, signal, onQueued) {
    this.#move(request, 'queued', 'queued');
    if (timeout !== null) this.#setDeadline(request, this.#now + timeout);
    if (signal !== null) {
      request.signal = signal;
      request.onAbort = () => this.#cancel(request);
      setMaxListeners(0, signal); // that many wait with one signal is no leak: each takes its listener away again
      signal.addEventListener('abort', request.onAbort, { once: true });
    }
    if (onQueued !== undefined) this.#notifications.add(onQueued); // CAL-1: everything above comes first
  }

  /**
   * A place that was held is used no more, but the upstream may still count it (REL-1, WAT-3).
   *
   * @param {Request} request
   * @param {'cooling' | 'reclaimed'} to
   */
  #startCooldown(request, to) {
    this.#move(request, to, to === 'cooling' ? 'released' : 'reclaimed');
    const cooldown = this.#isClosed ? 0 : this.#cooldownOf(request.provider);
    if (cooldown > 0) this.#setDeadline(request, this.#now + cooldown);
    else this.#move(request, 'free', 'recycled');
    this.#admit(request.provider);
  }

  /** @param {Request} request */
  #release(request) {
    if (request.state !== 'held') return;
    const { provider } = request;
    this.#readClock();
    this.#applyDue(provider);
    this.#startCooldown(request, 'cooling');
    this.#leave(provider);
  }

  /** @param {Request} request */
  #touch(request) {
    if (request.state !== 'held') return;
    this.#readClock();
    this.#applyDue(request.provider);
    request.touchedAt = this.#now;
    this.#leave(request.provider);
  }

  /** CAN-1, CAN-2: at the moment of the abort, whenever the caller's continuation may run. @param {Request} request */
  #cancel(request) {
    if (request.state !== 'queued' && request.state !== 'held') return;
    const { provider } = request;
    this.#readClock();
    this.#applyDue(provider);
    if (request.state === 'queued' || (request.state === 'held' && !request.isReceived)) {
      this.#move(request, 'cancelled', 'cancelled');
      this.#admit(provider);
    }
    this.#leave(provider);
  }

  /** @param {string} name @param {number | null} limit */
  #changeLimit(name, limit) {
    const provider = this.#enter(name);
    provider.limit = limit;
    this.#admit(provider);
    this.#leave(provider);
  }

  /** @param {Provider} provider */
  #endPause(provider) {
    provider.pausedUntil = null;
    this.#tellObserver({ event: 'resumed', at: this.#atMs(), provider: provider.name });
  }

  // -- admission -------------------------------------------------------------------------------------------------

  /** @param {Provider} provider */
  #hasRoom(provider) {
    const limit = provider.limit ?? this.#settings.defaultLimit; // LIM-4
    return limit === null || provider.inFlight < limit;
  }

  /** ADM-1: open, room, and nobody ahead. @param {Provider} provider */
  #canGrantAtOnce(provider) {
    return provider.pausedUntil === null && provider.queue.size === 0 && this.#hasRoom(provider);
  }

  /** ADM-7 @param {Provider} provider */
  #isQueueFull(provider) {
    const { maxQueued } = this.#settings;
    return maxQueued !== null && provider.queue.size >= maxQueued;
  }

  /**
   * NST-1: somebody waits, and all that counts is held by ancestors of those who do.
   *
   * @param {Provider} provider
   * @param {Set<string> | null} [newcomers] the ancestors of one more who would wait
   */
  #isSelfBlocked(provider, newcomers = null) {
    const { held, queue } = provider;
    if (held.size === 0 || held.size < provider.inFlight || this.#hasRoom(provider)) return false;
    const owners = new Set([...held].map((request) => request.conversationId)); // null is nobody's ancestor
    for (const id of newcomers ?? []) owners.delete(id);
    for (const { ancestors } of queue.sorted()) {
      for (const id of ancestors) owners.delete(id);
    }
    return owners.size === 0;
  }

  /** The admission step (ADM-2). @param {Provider} provider */
  #admit(provider) {
    while (!this.#isClosed && provider.pausedUntil === null && this.#hasRoom(provider)) {
      const head = provider.queue.first;
      if (head === undefined) return;
      this.#grant(head);
    }
  }

  // -- time ------------------------------------------------------------------------------------------------------

  /** Everything whose time has come, by deadline; ties: cooldown, pause, timeout (TIM-3). @param {Provider} provider */
  #applyDue(provider) {
    for (;;) {
      const next = provider.nextDeadline;
      if (next === null || next > this.#now) return;
      const first = provider.deadlines.first;
      if (first?.deadline === next && (first.state !== 'queued' || provider.pausedUntil !== next)) {
        if (first.state === 'queued') this.#move(first, 'timed_out', 'timed_out');
        else this.#move(first, 'free', 'recycled');
      } else {
        this.#endPause(provider);
      }
      this.#admit(provider);
    }
  }

  /** @param {Provider} provider */
  #cooldownOf(provider) {
    return provider.cooldown ?? this.#settings.releaseCooldown;
  }

  /** A timer for the provider's next deadline, if anybody wants to know in time (TIM-4). @param {Provider} provider */
  #armTimer(provider) {
    const hasWaiters = provider.queue.size > 0;
    const at = provider.nextDeadline;
    const isNeeded = at !== null && !this.#isClosed && (hasWaiters || this.#observer !== null);
    // One that comes too early wakes for nothing and is armed again: cheaper than a new one for every change.
    if (isNeeded && (provider.timer === null || provider.timerAt > at)) {
      this.#stopTimer(provider);
      provider.timerAt = at;
      provider.timer = this.#clock.startTimer(at - this.#now, () => this.#wake(provider));
    }
    // Somebody waits for it: then it keeps the process alive.
    if (hasWaiters) provider.timer?.ref();
    else provider.timer?.unref();
  }

  /** @param {Provider} provider */
  #stopTimer(provider) {
    if (provider.timer !== null) this.#clock.stopTimer(provider.timer);
    provider.timer = null;
  }

  /** A provider's timer fired, early or late. @param {Provider} provider */
  #wake(provider) {
    provider.timer = null;
    this.#readClock();
    this.#applyDue(provider);
    this.#leave(provider);
  }

  /** One operation over all providers: every slot is judged before the first callback hears of any (CAL-2). */
  #sweep() {
    const timeout = /** @type {number} */ (this.#settings.slotTimeout);
    const providers = this.#enterAll();
    for (const provider of providers) {
      for (const request of [...provider.held]) {
        const untouched = this.#now - request.touchedAt;
        if (untouched > timeout) this.#reclaim(request, untouched);
      }
    }
    this.#leaveAll(providers);
  }

  /** @param {Request} request @param {number} untouched in ticks */
  #reclaim(request, untouched) {
    const { provider, conversationId } = request;
    request.wasReclaimed = true;
    this.#startCooldown(request, 'reclaimed');
    const who = conversationId === null ? 'no conversation' : `conversation ${JSON.stringify(conversationId)}`;
    const seconds = (toMs(untouched) / 1000).toFixed(1);
    this.#notifications.add(() =>
      this.#logger.warn(`slot of ${JSON.stringify(provider.name)} reclaimed: ${who}, untouched for ${seconds} s`),
    );
    const onReclaim = this.#onReclaim;
    if (onReclaim !== null) this.#notifications.add(() => onReclaim(request.slot));
  }

  // -- telling ---------------------------------------------------------------------------------------------------

  /** @param {ManagerEvent} event */
  #tellObserver(event) {
    const observer = this.#observer;
    if (observer !== null) this.#notifications.add(() => observer(event));
  }

  #tellIfEmpty() {
    if (!this.#isClosed || this.#heldCount > 0) return;
    for (const goOn of this.#waitsForEmptiness.splice(0)) goOn();
  }

  // -- reading ---------------------------------------------------------------------------------------------------

  /** @param {AcquireOptions} options */
  #readRequest({ conversationId, promptStartedAt }) {
    return {
      conversationId: readOptionalText('conversationId', conversationId),
      promptStartedAt:
        promptStartedAt === undefined
          ? this.#clock.wallTime() / 1000
          : readFinite('promptStartedAt', promptStartedAt),
    };
  }

  #atMs() {
    return toMs(this.#now - this.#createdAt);
  }

  /** @param {Provider} provider @returns {Status} */
  #describe(provider) {
    const { name, limit, counts, inFlight, pausedUntil } = provider;
    const pausedFor = pausedUntil === null ? null : toMs(pausedUntil - this.#now);
    return {
      provider: name,
      limit,
      inFlight,
      held: counts.held,
      cooling: counts.cooling,
      reclaimed: counts.reclaimed,
      queued: counts.queued,
      paused: pausedFor !== null,
      pausedFor,
      pausedUntil: pausedFor === null ? null : this.#clock.wallTime() + pausedFor,
      selfBlocked: this.#isSelfBlocked(provider),
    };
  }
}

/**
 * The conversations around a request, its own left out: the one that it names, else the innermost of them (NST-1).
 *
 * @param {string | null} conversationId
 * @param {string[]} path
 */
function findAncestors(conversationId, path) {
  const ancestors = readTexts('path', path);
  const own = conversationId ?? path.at(-1);
  if (own !== undefined) ancestors.delete(own);
  return ancestors;
}

/** @param {number} ticks */
function toMs(ticks) {
  return ticks / TICKS_PER_MS;
}
