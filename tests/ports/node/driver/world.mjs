import {
  ConcurrencyManager,
  InvalidTypeError,
  InvalidValueError,
  ManagerClosedError,
  NestedAcquireError,
  QueueFullError,
} from '../lib/index.mjs';
import { VirtualClock } from '../testing/virtual-clock.mjs';
import { eventRow, number, optionsFrom, statusRow } from './wire.mjs';

/** @import { ObservedEvent, Slot, Ticket } from '../lib/index.mjs' */

/**
 * The code that called acquire or try_acquire for one of the kit's requests.
 *
 * @typedef {object} Caller
 * @property {Ticket | null} ticket Null after try_acquire.
 * @property {Slot | null} slot Null until it was received.
 * @property {AbortController} abort
 */

/** @typedef {'queued' | 'paused' | 'reclaimed'} HookPoint */
/** @typedef {{ on: HookPoint, provider: string, do: any[], throw: boolean, times: number }} Hook */

/** More steps than this mean that a caller that could go on never does. */
const STEPS_TO_SETTLE = 1000;

const SILENT = { warn: () => {}, error: () => {} };

/** A manager on a virtual clock, with everybody who calls it and listens to it. */
export class World {
  #clock = new VirtualClock();
  #manager;
  /** Whether the kit asks about NST-1: only then may rows tell of it. */
  #asksForNesting;
  /** @type {Map<string, Caller>} */
  #callers = new Map();
  /** Who still waits. @type {Map<string, Caller>} */
  #unsettled = new Map();
  /** The kit's names by the library's numbers. @type {Map<number, string>} */
  #names = new Map();
  /** @type {Set<Hook>} */
  #hooks = new Set();
  /**
   * Since the last reply: the library's events, and rows that are our own.
   *
   * @type {(ObservedEvent | { row: object })[]}
   */
  #events = [];

  /** @param {any} config */
  constructor(config) {
    this.#asksForNesting = 'nested' in config;
    this.#manager = new ConcurrencyManager({
      ...optionsFrom(config),
      clock: this.#clock,
      logger: SILENT, // a warning on stdout would break the protocol
      observer: (event) => void this.#events.push(event),
      onPause: (provider) => this.#callHooks('paused', provider),
      onReclaim: (slot) => this.#callHooks('reclaimed', slot.provider),
    });
  }

  // Commands

  /** @param {any[]} operations */
  async do(operations) {
    operations.forEach((operation, index) => this.#perform(operation, index));
    await this.#settle();
  }

  /** @param {number} ms */
  async advance(ms) {
    await this.#clock.advance(ms, () => this.#settle());
  }

  /** @param {number} ms */
  async stall(ms) {
    await this.#clock.stall(ms, () => this.#settle());
  }

  reply() {
    // Reading the status is an operation, which may have something to tell: it comes before the events are taken.
    const status = this.#manager.statuses().map((row) => statusRow(row, this.#asksForNesting));
    // Names only now: a request that is granted at once is told of before enqueue returns.
    const events = this.#events.map((event) => ('row' in event ? event.row : eventRow(event, this.#names)));
    this.#events = [];
    return { events, status, unsettled: [...this.#unsettled.keys()], timers: this.#clock.liveTimers };
  }

  // Operations

  /**
   * @param {any} operation
   * @param {number} index
   */
  #perform(operation, index) {
    try {
      this.#operate(operation);
    } catch (error) {
      this.#addRow({ event: 'error', op: operation.op, index, kind: kindOf(error) });
    }
  }

  /** @param {any} operation */
  #operate(operation) {
    const { op, provider, request } = operation;
    const manager = this.#manager;
    const caller = this.#callers.get(request);
    switch (op) {
      case 'acquire':
        return this.#acquire(operation);
      case 'try_acquire':
        return this.#tryAcquire(operation);
      case 'release':
        return caller?.slot?.release();
      case 'touch':
        return caller?.slot?.touch();
      case 'cancel':
        return caller?.abort.abort();
      case 'inspect':
        return caller && this.#inspect(request, caller);
      case 'set_limit':
        return manager.setLimit(provider, number(operation.limit));
      case 'remove_limit':
        return manager.removeLimit(provider);
      case 'set_cooldown':
        return manager.setCooldown(provider, number(operation.cooldown_ms));
      case 'rate_limited':
        return manager.reportRateLimit(provider, number(operation.retry_after_ms));
      case 'resume':
        return manager.resume(provider);
      case 'close':
        return manager.close();
      case 'hook':
        return this.#hooks.add({ do: [], throw: false, times: 1, ...operation });
      case 'wall_clock':
        return this.#clock.jumpWallClock(operation.jump_ms);
      default:
        throw new Error(`unknown operation ${JSON.stringify(op)}`);
    }
  }

  /** @param {any} operation */
  #acquire({ provider, request, conversation, prompt_started_at, timeout_ms, path }) {
    const abort = new AbortController();
    const ticket = this.#manager.enqueue(provider, {
      conversationId: conversation,
      promptStartedAt: number(prompt_started_at),
      timeoutMs: number(timeout_ms),
      signal: abort.signal,
      path,
      onQueued: () => this.#callHooks('queued', provider),
    });
    const caller = { ticket, slot: ticket.slot, abort };
    this.#callers.set(request, caller);
    this.#names.set(ticket.number, request);
    if (ticket.slot === null) this.#wait(request, caller, ticket);
  }

  /**
   * What `acquire` does after `enqueue`. It isn't awaited: the burst goes on.
   *
   * @param {string} request
   * @param {Caller} caller
   * @param {Ticket} ticket
   */
  async #wait(request, caller, ticket) {
    this.#unsettled.set(request, caller);
    await ticket.decided;
    this.#unsettled.delete(request);
    try {
      caller.slot = ticket.take();
    } catch {
      // Cancelled, timed out or rejected: its event has told so.
    }
  }

  /** @param {any} operation */
  #tryAcquire({ provider, request, conversation, prompt_started_at }) {
    const slot = this.#manager.tryAcquire(provider, {
      conversationId: conversation,
      promptStartedAt: number(prompt_started_at),
    });
    if (slot === null) return;
    this.#callers.set(request, { ticket: null, slot, abort: new AbortController() });
    this.#names.set(slot.number, request);
  }

  /**
   * @param {string} request
   * @param {Caller} caller
   */
  #inspect(request, { slot, ticket }) {
    const state = (slot ?? ticket)?.state;
    this.#addRow({ event: 'slot', request, state, reclaimed: slot?.reclaimed ?? false });
  }

  /** @param {object} row */
  #addRow(row) {
    this.#events.push({ row: { at_ms: this.#clock.nowMs, ...row } });
  }

  // Callbacks

  /**
   * @param {HookPoint} point
   * @param {string} provider
   */
  #callHooks(point, provider) {
    for (const hook of [...this.#hooks]) {
      if (hook.on !== point || hook.provider !== provider) continue;
      hook.times -= 1;
      if (hook.times === 0) this.#hooks.delete(hook);
      hook.do.forEach((operation, index) => this.#perform(operation, index));
      if (hook.throw) throw new Error('as the hook was told');
    }
  }

  // Settling

  /** Lets everybody go on who can, then the library's turns, until there is nothing left to do. */
  async #settle() {
    do await this.#letCallersRun();
    while (this.#clock.runTurn());
  }

  async #letCallersRun() {
    for (let step = 0; this.#someoneCanGoOn(); step += 1) {
      if (step === STEPS_TO_SETTLE) throw new Error('a caller that was decided never comes back');
      await null;
    }
  }

  #someoneCanGoOn() {
    for (const { ticket } of this.#unsettled.values()) if (ticket?.state !== 'queued') return true;
    return false;
  }
}

/** @param {unknown} error */
function kindOf(error) {
  if (error instanceof InvalidTypeError || error instanceof InvalidValueError) return 'invalid';
  if (error instanceof ManagerClosedError) return 'closed';
  if (error instanceof QueueFullError) return 'queue_full';
  if (error instanceof NestedAcquireError) return 'nested';
  throw error; // no refusal, a slip: the kit is told as much
}
