/** @import { Engine } from './engine.mjs' */
/** @import { Request } from './request.mjs' */

/**
 * What `acquire` gives: the permission to have one request running at the provider.
 *
 * Release it when the upstream has answered. It is also disposable: `using slot = await manager.acquire(...)`.
 */
export class Slot {
  #request;
  #engine;

  /**
   * @param {Request} request
   * @param {Engine} engine
   */
  constructor(request, engine) {
    this.#request = request;
    this.#engine = engine;
  }

  get provider() {
    return this.#request.provider.name;
  }

  get conversationId() {
    return this.#request.conversationId;
  }

  /** The request's number in the observer's events. */
  get number() {
    return this.#request.number;
  }

  get state() {
    return this.#request.state;
  }

  /** Whether the watchdog took it away. The upstream may still be busy with it, but others may have its room. */
  get reclaimed() {
    return this.#request.reclaimed;
  }

  /** Gives it back. Only the first call does anything (REL-2). */
  release() {
    this.#engine.release(this.#request);
  }

  /** A sign of life: the watchdog's time begins anew. Call it for each chunk of a long stream. */
  touch() {
    this.#engine.touch(this.#request);
  }

  [Symbol.dispose]() {
    this.release();
  }
}
