import { Slot } from './slot.mjs';

/** @import { Deadline } from './deadlines.mjs' */
/** @import { Engine } from './engine.mjs' */
/** @import { Provider } from './provider.mjs' */

/**
 * @typedef {'new' | 'queued' | 'held' | 'cooling' | 'reclaimed' | 'free' | 'cancelled' | 'timed_out' | 'rejected'} State
 */

/** Already decided: there is nothing to wait for. */
const DECIDED = Promise.resolve();

/** What one acquire is to its provider, from the call to its end. Callers see it as a Ticket and a Slot. */
export class Request {
  /** @type {State} */
  state = 'new';
  /** When it last showed life, in ticks (WAT-2). */
  touchedAt = 0;
  /** True from the reclaim on, also after the end (WAT-3). */
  reclaimed = false;
  /** Whether the caller has the slot. Until then a cancel gives it back (CAN-2). */
  received = false;
  /** What ends its state by itself: its timeout while it is queued, its cooldown later. @type {Deadline | null} */
  deadline = null;
  /** Resolves, with nothing, when the request is no longer queued. */
  decided = DECIDED;
  /** The conversations that wait for this one, while it waits (NST-1). @type {Set<string>} */
  ancestors = new Set();
  /** Takes the listener off the caller's signal. */
  stopListening = () => {};

  #decide = () => {};

  /**
   * @param {Engine} engine
   * @param {object} asked
   * @param {Provider} asked.provider
   * @param {number} asked.number The arrival number.
   * @param {string | null} asked.conversationId
   * @param {number} asked.promptStartedAt
   */
  constructor(engine, { provider, number, conversationId, promptStartedAt }) {
    this.slot = new Slot(this, engine);
    this.provider = provider;
    this.number = number;
    this.conversationId = conversationId;
    this.promptStartedAt = promptStartedAt;
  }

  /** Queued, or granted but still on its way to the caller. */
  get isCancellable() {
    return this.state === 'queued' || (this.state === 'held' && !this.received);
  }

  startWaiting() {
    this.decided = new Promise((resolve) => {
      this.#decide = resolve;
    });
  }

  stopWaiting() {
    this.#decide();
  }
}
