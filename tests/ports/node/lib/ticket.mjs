import { AcquireTimeoutError, ManagerClosedError } from './errors.mjs';

/** @import { Request } from './request.mjs' */
/** @import { Slot } from './slot.mjs' */

/**
 * A place in the queue, or a slot already: what `enqueue` returns without waiting.
 *
 * `acquire` is `enqueue`, `await ticket.decided`, `ticket.take()`. A promise that was resolved can't be stopped, so
 * `decided` resolves with nothing, and whether there is a slot is asked when the caller runs (CAN-2).
 */
export class Ticket {
  #request;
  #signal;

  /**
   * @param {Request} request
   * @param {AbortSignal | null} signal
   */
  constructor(request, signal) {
    this.#request = request;
    this.#signal = signal;
  }

  /** The request's number in the observer's events. */
  get number() {
    return this.#request.number;
  }

  get state() {
    return this.#request.state;
  }

  /** Resolves when the request is no longer queued. Never rejects. @returns {Promise<void>} */
  get decided() {
    return this.#request.decided;
  }

  /** The slot, once it was received: at once if it was granted within `enqueue`, else by `take`. */
  get slot() {
    return this.#request.received ? this.#request.slot : null;
  }

  /**
   * Receives the slot. From here on a cancel means nothing, and the slot must be released.
   *
   * @returns {Slot}
   */
  take() {
    const request = this.#request;
    switch (request.state) {
      case 'queued':
        throw new Error('the request is still queued: await ticket.decided first');
      case 'cancelled':
        throw this.#signal?.reason;
      case 'timed_out':
        throw new AcquireTimeoutError(`no slot of ${request.provider.name} within the timeout`);
      case 'rejected':
        throw new ManagerClosedError('the manager was closed while the request was queued');
      default:
        request.received = true;
        request.stopListening();
        return request.slot;
    }
  }
}
