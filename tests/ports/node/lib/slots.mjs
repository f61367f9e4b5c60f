import { toMs } from './clock.mjs';
import { SortedList } from './sorted-list.mjs';

/** @import { Deadlines } from './deadlines.mjs' */
/** @import { NotificationLine } from './notification-line.mjs' */
/** @import { Request, State } from './request.mjs' */

/** @typedef {'queued' | 'held' | 'cooling' | 'reclaimed'} Place A state that has exits. */

/**
 * What is told of a request that enters a state.
 *
 * @type {Record<Exclude<State, 'new'>, string>}
 */
const EVENT = {
  queued: 'queued',
  held: 'granted',
  cooling: 'released',
  reclaimed: 'reclaimed',
  free: 'recycled',
  cancelled: 'cancelled',
  timed_out: 'timed_out',
  rejected: 'rejected',
};

/** Where each request of a provider stands. Which way it may go is the provider's business. */
export class Slots {
  #provider;
  #deadlines;
  #line;
  #places = {
    /** Oldest prompt first, then by arrival (ORD-1). @type {SortedList<Request>} */
    queued: new SortedList((a, b) => a.promptStartedAt - b.promptStartedAt || a.number - b.number),
    /** In the order of the grants. @type {Set<Request>} */
    held: new Set(),
    /** @type {Set<Request>} */
    cooling: new Set(),
    /** @type {Set<Request>} */
    reclaimed: new Set(),
  };

  /**
   * @param {string} provider
   * @param {Deadlines} deadlines
   * @param {NotificationLine} line
   */
  constructor(provider, deadlines, line) {
    this.#provider = provider;
    this.#deadlines = deadlines;
    this.#line = line;
  }

  /** Whose turn it is. */
  get head() {
    return this.#places.queued.first;
  }

  /** What the upstream may still count. */
  get inFlight() {
    return this.count('held') + this.count('cooling') + this.count('reclaimed');
  }

  /** @param {Place} place */
  count(place) {
    return this.#places[place].size;
  }

  /** A copy, since whoever walks it moves requests. @param {Place} place */
  in(place) {
    return [...this.#places[place]];
  }

  /**
   * Every change of a state goes through here: nothing is counted twice, and nothing happens untold.
   *
   * @param {Request} request
   * @param {Exclude<State, 'new'>} state
   * @param {number} now
   */
  move(request, state, now) {
    const { state: from, deadline, number, conversationId } = request;
    this.#placeOf(from)?.delete(request);
    if (deadline !== null) this.#deadlines.drop(deadline); // it was for the state that is left
    request.deadline = null;

    request.state = state;
    this.#placeOf(state)?.add(request);
    if (state === 'queued') request.startWaiting();
    if (state === 'held') request.touchedAt = now;
    if (from === 'queued') request.stopWaiting();
    if (this.#placeOf(state) === null) request.stopListening();

    this.#line.tell({ event: EVENT[state], atMs: toMs(now), provider: this.#provider, request: number, conversationId });
  }

  /**
   * Moves it at a later time, unless something else moves it before.
   *
   * @param {Request} request
   * @param {'free' | 'timed_out'} state
   * @param {number} at
   * @param {number} rank
   */
  moveAt(request, state, at, rank) {
    request.deadline = { at, rank, number: request.number, apply: (now) => this.move(request, state, now) };
    this.#deadlines.add(request.deadline);
  }

  /**
   * @param {State} state
   * @returns {SortedList<Request> | Set<Request> | null} Null for ends: nothing is kept of what has ended.
   */
  #placeOf(state) {
    return state in this.#places ? this.#places[/** @type {Place} */ (state)] : null;
  }
}
