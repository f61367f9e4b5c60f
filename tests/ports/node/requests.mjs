// @ts-check

/**
 * What a limiter keeps of a provider and of a request, and what a caller sees of the latter: `Ticket` and `Slot`.
 *
 * Nothing here changes a state: that is the manager's, in one place (`#move` in limiter.mjs).
 */

import { AcquireTimeoutError, ManagerClosedError } from './arguments.mjs';
import { Heap } from './heap.mjs';

/** @typedef {import('./types.mjs').SlotState} SlotState */

/** What an account at an upstream has. Forgotten as soon as it is idle without settings (ACC-3). */
export class Provider {
  /** @type {number | null} */
  limit = null;
  /** @type {number | null} Its own cooldown, in ticks. */
  cooldown = null;
  /** @type {number | null} In ticks. */
  pausedUntil = null;
  /** How many requests are in each state that isn't an end. */
  counts = { queued: 0, held: 0, cooling: 0, reclaimed: 0 };
  /** @type {Set<Request>} The held, in the order of their grants. */
  held = new Set();
  /** @type {Heap<Request>} Who waits, the next one first (ORD-1). */
  queue = new Heap(
    (a, b) => a.promptStartedAt < b.promptStartedAt || (a.promptStartedAt === b.promptStartedAt && a.number < b.number),
    'placeInQueue',
  );
  /** @type {Heap<Request>} Ends of cooldowns, then timeouts of waiters (TIM-3). */
  deadlines = new Heap((a, b) => {
    if (a.deadline !== b.deadline) return /** @type {number} */ (a.deadline) < /** @type {number} */ (b.deadline);
    if ((a.state === 'queued') !== (b.state === 'queued')) return b.state === 'queued';
    return a.number < b.number;
  }, 'placeAmongDeadlines');
  /** @type {import('./system-clock.mjs').Timer | null} */
  timer = null;
  timerAt = 0;

  /** @param {string} name */
  constructor(name) {
    this.name = name;
  }

  get inFlight() {
    return this.counts.held + this.counts.cooling + this.counts.reclaimed;
  }

  get isIdle() {
    const { limit, cooldown, pausedUntil, inFlight, counts } = this;
    return limit === null && cooldown === null && pausedUntil === null && inFlight === 0 && counts.queued === 0;
  }

  /** When something happens by itself, in ticks; null: never. @returns {number | null} */
  get nextDeadline() {
    const first = this.deadlines.first?.deadline ?? null;
    if (first === null || this.pausedUntil === null) return first ?? this.pausedUntil;
    return Math.min(first, this.pausedUntil);
  }
}

/** @typedef {{release: (request: Request) => void, touch: (request: Request) => void}} SlotOperations */

/** One request and what becomes of it. */
export class Request {
  /** @type {SlotState | 'new'} */
  state = 'new';
  /** @type {number | null} In ticks: the timeout of a waiter, the end of a cooldown. */
  deadline = null;
  touchedAt = 0;
  wasReclaimed = false;
  /** Whether its caller has the slot. Until then a cancel gives it back. */
  isReceived = false;
  /** Lets the caller go on that waits in `Ticket.wait`. */
  wake = () => {};
  /** Of one that waits: the conversations around it, its own left out (NST-1). @type {Set<string>} */
  ancestors = new Set();
  /** @type {AbortSignal | null} */
  signal = null;
  onAbort = () => {};
  placeInQueue = 0;
  placeAmongDeadlines = 0;

  /**
   * @param {Provider} provider
   * @param {number} number
   * @param {{conversationId: string | null, promptStartedAt: number, timeout: number}} told
   * @param {SlotOperations} operations
   */
  constructor(provider, number, { conversationId, promptStartedAt, timeout }, operations) {
    this.provider = provider;
    this.number = number;
    this.conversationId = conversationId;
    this.promptStartedAt = promptStartedAt;
    /** In milliseconds, for the error's text. */
    this.timeout = timeout;
    this.slot = new Slot(this, operations);
  }

  stopListening() {
    this.signal?.removeEventListener('abort', this.onAbort);
    this.signal = null;
  }

  /** The caller has the slot: from now on only a release or the watchdog ends it. */
  receive() {
    this.isReceived = true;
    this.stopListening();
  }
}

/** A place at a provider. Release it, whatever happens: `try`/`finally`, `using`, or `withSlot`. */
export class Slot {
  #request;
  #operations;

  /** Slots are made by the manager. @param {Request} request @param {SlotOperations} operations */
  constructor(request, operations) {
    this.#request = request;
    this.#operations = operations;
  }

  /** Gives the place back; it counts for the cooldown. May be called any number of times, and never throws (REL-2). */
  release() {
    this.#operations.release(this.#request);
  }

  /** Tells the watchdog that the request is alive, for instance at every chunk of a stream (WAT-2). */
  touch() {
    this.#operations.touch(this.#request);
  }

  get provider() {
    return this.#request.provider.name;
  }

  get conversationId() {
    return this.#request.conversationId;
  }

  get promptStartedAt() {
    return this.#request.promptStartedAt;
  }

  /** The arrival number, as in events. */
  get number() {
    return this.#request.number;
  }

  /** @returns {SlotState} */
  get state() {
    return /** @type {SlotState} */ (this.#request.state);
  }

  /** Whether the watchdog took it away; true to the end (WAT-3). */
  get reclaimed() {
    return this.#request.wasReclaimed;
  }

  [Symbol.dispose ?? Symbol.for('dispose')]() {
    this.release();
  }
}

/** A request that has been made, before its caller waits: what `acquire` is built on, for adapters and drivers. */
export class Ticket {
  #request;

  /** @param {Request} request */
  constructor(request) {
    this.#request = request;
  }

  get number() {
    return this.#request.number;
  }

  /** @returns {SlotState} */
  get state() {
    return /** @type {SlotState} */ (this.#request.state);
  }

  get reclaimed() {
    return this.#request.wasReclaimed;
  }

  /** The slot once it is received, null before: one that was granted at once is there at once. */
  get slot() {
    return this.#request.isReceived ? this.#request.slot : null;
  }

  /** The slot, or why there is none. Call it at once, and once: a grant that nobody waits for is the watchdog's. */
  async wait() {
    const request = this.#request;
    if (request.state === 'queued') {
      await new Promise((resolve) => {
        request.wake = () => resolve(undefined);
      });
    }
    // Judged again only now, when the caller runs: between the grant and this line a signal may have given it back.
    switch (request.state) {
      case 'cancelled':
        throw request.signal?.reason;
      case 'timed_out':
        throw new AcquireTimeoutError(request.provider.name, request.timeout);
      case 'rejected':
        throw new ManagerClosedError();
      default:
        request.receive();
        return request.slot;
    }
  }
}
