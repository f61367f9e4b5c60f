#!/usr/bin/env node
// @ts-check

/**
 * The port's side of protocol 1: one JSON object a line on stdin, one reply a line on stdout (spec/PORTING.md).
 *
 *     node driver.mjs
 *
 * Commands are answered one after another, in order; whatever has come in together is answered with one write.
 */

import { readFileSync } from 'node:fs';

import { ConcurrencyManager, ManagerClosedError, NestedAcquireError, QueueFullError } from './limiter.mjs';
import { VirtualClock } from './virtual-clock.mjs';

const FEATURES = [
  'cancel', 'timeout', 'touch', 'resume', 'max_queued', 'default_limit', 'set_cooldown', 'try_acquire', 'stall',
  'timers', 'inspect', 'hooks', 'wall_clock', 'nesting',
]; // prettier-ignore

/** stdout is for the protocol alone, and a library that logs to stderr for nobody is slow. */
const silent = { warn() {}, error() {} };

/** The floats that JSON lacks. @type {Record<string, number>} */
const FLOATS = { NaN: NaN, Infinity: Infinity, '-Infinity': -Infinity };

/** A number as it stands on the wire: judging it is the library's work. @param {unknown} raw @returns {any} */
const number = (raw) => (typeof raw === 'string' && Object.hasOwn(FLOATS, raw) ? FLOATS[raw] : raw);

/** So many times the callers are let on before the driver says that they hang. */
const MOST_HOPS = 1000;

/** The name under which a refusal goes on the wire, or null for what is no refusal. @param {any} error */
function refusalKind(error) {
  if (error instanceof ManagerClosedError) return 'closed';
  if (error instanceof QueueFullError) return 'queue_full';
  if (error instanceof NestedAcquireError) return 'nested';
  // Not every TypeError: one that comes from a mistake in the library is no refusal.
  if (error?.code === 'ERR_INVALID_ARG_TYPE' || error?.code === 'ERR_OUT_OF_RANGE') return 'invalid';
  return null;
}

/** One manager on its own clock, from `new` to the next `new`. */
class World {
  clock = new VirtualClock();
  manager;
  /** What the manager told and what was refused since the last reply. @type {any[]} */
  events = [];
  /** Every request by name: what the caller has of it. @type {Map<string, Caller>} */
  callers = new Map();
  /** Names by arrival number. @type {Map<number, string>} */
  names = new Map();
  /** Who still waits. @type {Set<Caller>} */
  unsettled = new Set();
  /** @type {{on: string, provider: string, do: any[], throw: boolean, times: number}[]} */
  hooks = [];
  /** Whether rows say who waits for itself (NST-1): only where it is asked for. */
  tellsNesting;

  /** @param {any} config */
  constructor(config) {
    this.tellsNesting = 'nested' in config;
    this.manager = new ConcurrencyManager({
      releaseCooldown: number(config.release_cooldown_ms),
      slotTimeout: number(config.slot_timeout_ms),
      watchdogInterval: number(config.watchdog_interval_ms),
      defaultPause: number(config.default_pause_ms),
      minPause: number(config.min_pause_ms),
      maxPause: number(config.max_pause_ms),
      maxQueued: number(config.max_queued),
      defaultLimit: number(config.default_limit),
      nested: config.nested,
      onPause: (provider) => this.callHooks('paused', provider),
      onReclaim: (slot) => this.callHooks('reclaimed', slot.provider),
      observer: (event) => this.events.push(event),
      logger: silent,
      clock: this.clock,
    });
  }

  // -- commands

  /** @param {any[]} ops */
  async do(ops) {
    ops.forEach((op, index) => this.perform(op, index));
    await this.settle();
  }

  /** From deadline to deadline, each punctual, with the callers let on after each. @param {number} ms */
  async advance(ms) {
    const end = this.clock.nowMs + ms;
    while (this.clock.nextDueMs <= end) {
      this.clock.moveToMs(this.clock.nextDueMs);
      this.clock.fireDue();
      await this.settle();
    }
    this.clock.moveToMs(end);
  }

  /** A blocked event loop: time leaps, then everything that is overdue happens now. @param {number} ms */
  async stall(ms) {
    this.clock.moveToMs(this.clock.nowMs + ms);
    this.clock.fireDue();
    await this.settle();
  }

  /**
   * The event loop runs until nothing is left to do: every caller that can go on has gone on, turn after turn.
   *
   * Counted, not guessed: a caller whose request no longer waits, but who hasn't gone on, needs another microtask.
   */
  async settle() {
    do {
      for (let hops = 0; [...this.unsettled].some((caller) => caller.ticket.state !== 'queued'); hops += 1) {
        if (hops > MOST_HOPS) throw new Error('a caller whose request was granted or has ended does not go on');
        await null;
      }
    } while (this.clock.runTurn());
  }

  // -- operations

  /** @param {any} op @param {number} index */
  perform(op, index) {
    try {
      this.operate(op);
    } catch (error) {
      const kind = refusalKind(error);
      if (kind === null) throw error;
      this.events.push({ event: 'error', at: this.clock.nowMs, op: op.op, index, kind });
    }
  }

  /** @param {any} op */
  operate(op) {
    const { manager } = this;
    switch (op.op) {
      case 'acquire':
        return this.acquire(op);
      case 'try_acquire':
        return this.tryAcquire(op);
      case 'release':
        return this.callers.get(op.request)?.slot?.release();
      case 'touch':
        return this.callers.get(op.request)?.slot?.touch();
      case 'cancel':
        return this.callers.get(op.request)?.abort.abort();
      case 'inspect':
        return this.inspect(op.request);
      case 'set_limit':
        return manager.setLimit(op.provider, number(op.limit));
      case 'remove_limit':
        return manager.removeLimit(op.provider);
      case 'set_cooldown':
        return manager.setCooldown(op.provider, number(op.cooldown_ms));
      case 'rate_limited':
        return manager.reportRateLimit(op.provider, number(op.retry_after_ms));
      case 'resume':
        return manager.resume(op.provider);
      case 'close':
        return manager.close();
      case 'hook':
        return void this.hooks.push({ do: [], throw: false, times: 1, ...op });
      case 'wall_clock':
        return this.clock.jumpWallTime(op.jump_ms);
      default:
        throw new Error(`unknown operation ${JSON.stringify(op.op)}`);
    }
  }

  /** @param {any} op */
  acquire(op) {
    const abort = new AbortController();
    const ticket = this.manager.enqueue(op.provider, {
      conversationId: op.conversation,
      promptStartedAt: number(op.prompt_started_at),
      timeout: number(op.timeout_ms),
      signal: abort.signal,
      path: op.path,
      onQueued: () => this.callHooks('queued', op.provider),
    });
    const caller = { name: op.request, ticket, slot: ticket.slot, abort };
    this.remember(caller);
    if (caller.slot !== null) return; // granted inside its own call: it never waited
    this.unsettled.add(caller);
    ticket.wait().then(
      (slot) => {
        caller.slot = slot;
        this.unsettled.delete(caller);
      },
      () => this.unsettled.delete(caller), // the events tell why
    );
  }

  /** @param {any} op */
  tryAcquire(op) {
    const slot = this.manager.tryAcquire(op.provider, {
      conversationId: op.conversation,
      promptStartedAt: number(op.prompt_started_at),
    });
    if (slot !== null) this.remember({ name: op.request, ticket: slot, slot, abort: new AbortController() });
  }

  /** @param {Caller} caller */
  remember(caller) {
    this.callers.set(caller.name, caller);
    this.names.set(caller.ticket.number, caller.name);
  }

  /** @param {string} request */
  inspect(request) {
    const ticket = this.callers.get(request)?.ticket;
    if (ticket === undefined) return;
    const { state, reclaimed } = ticket;
    this.events.push({ event: 'slot', at: this.clock.nowMs, name: request, state, reclaimed });
  }

  /** Called by the library's own callback. @param {string} on @param {string} provider */
  callHooks(on, provider) {
    for (const hook of this.hooks.filter((armed) => armed.on === on && armed.provider === provider)) {
      hook.times -= 1;
      this.hooks = this.hooks.filter((armed) => armed.times > 0);
      hook.do.forEach((op, index) => this.perform(op, index));
      if (hook.throw) throw new Error('a hook throws');
    }
  }

  // -- replies

  reply() {
    const status = this.manager.statuses().map((status) => statusRow(status, this.tellsNesting)); // an operation, too: first of all, it may make events
    const events = this.events.map((event) => this.eventRow(event));
    this.events = [];
    const unsettled = [...this.unsettled].map((caller) => caller.name);
    return { events, status, unsettled, timers: this.clock.liveTimers };
  }

  /** The event in the words of the protocol; only now is every arrival number's name known. @param {any} event */
  eventRow(event) {
    const { event: kind, at: at_ms, provider } = event;
    switch (kind) {
      case 'paused':
        return { event: kind, at_ms, provider, requested_ms: event.requested, applied_ms: event.applied };
      case 'resumed':
        return { event: kind, at_ms, provider };
      case 'error':
        return { event: kind, at_ms, op: event.op, index: event.index, kind: event.kind };
      case 'slot':
        return { event: kind, at_ms, request: event.name, state: event.state, reclaimed: event.reclaimed };
      default:
        return { event: kind, at_ms, provider, request: this.names.get(event.request) };
    }
  }
}

/**
 * @typedef {object} Caller
 * @property {string} name
 * @property {import('./limiter.mjs').Ticket | import('./limiter.mjs').Slot} ticket
 * @property {import('./limiter.mjs').Slot | null} slot what the caller has received
 * @property {AbortController} abort
 */

/** @param {import('./types.mjs').Status} status @param {boolean} tellsNesting */
function statusRow(status, tellsNesting) {
  const { provider, limit, inFlight, held, cooling, reclaimed, queued, paused, pausedFor } = status;
  const row = { provider, limit, in_flight: inFlight, held, cooling, reclaimed, queued, paused, paused_for_ms: pausedFor };
  return tellsNesting ? { ...row, self_blocked: status.selfBlocked } : row;
}

// -- the conversation ------------------------------------------------------------------------------------------------

/** @type {World | null} */
let world = null;

const { version } = JSON.parse(readFileSync(new URL('package.json', import.meta.url), 'utf8'));

/** The reply to a message, without its id; null after `bye`. @param {any} message */
async function answer(message) {
  switch (message.cmd) {
    case 'hello': {
      const runtime = `node ${process.version}`;
      const port = { name: 'provider-concurrency-node', version, language: 'JavaScript', runtime };
      return { protocol: 1, port, features: FEATURES };
    }
    case 'bye':
      return null;
    case 'new':
      try {
        world = new World(message.config);
      } catch (error) {
        if (refusalKind(error) !== 'invalid') throw error;
        return { error: { kind: 'invalid', message: String(error) } };
      }
      return world.reply();
    case 'do':
    case 'advance':
    case 'stall': {
      if (world === null) return { error: { message: `${message.cmd} before new` } };
      await world[/** @type {'do'} */ (message.cmd)](message.cmd === 'do' ? message.ops : message.ms);
      return world.reply();
    }
    default:
      return { error: { message: `unknown command ${JSON.stringify(message.cmd)}` } };
  }
}

/** One line in, one line out; null after `bye`. @param {string} line */
async function answerLine(line) {
  let id = null;
  try {
    const message = JSON.parse(line);
    id = message?.id ?? null;
    const reply = await answer(message);
    return reply === null ? null : `${JSON.stringify({ id, ...reply })}\n`;
  } catch (error) {
    return `${JSON.stringify({ id, error: { message: String(error) } })}\n`; // and lives on
  }
}

async function main() {
  let rest = '';
  process.stdin.setEncoding('utf8'); // a chunk may end in the middle of a character, and of a line
  for await (const chunk of process.stdin) {
    const lines = (rest + chunk).split('\n');
    rest = /** @type {string} */ (lines.pop());
    let out = '';
    for (const line of lines) {
      if (line.trim() === '') continue;
      const reply = await answerLine(line);
      if (reply === null) {
        process.stdout.write(out, () => process.exit(0));
        return;
      }
      out += reply;
    }
    process.stdout.write(out); // before reading on: the kit may wait for these replies
  }
}

await main();
