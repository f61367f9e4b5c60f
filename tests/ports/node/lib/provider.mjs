import { toMs, toTicks } from './clock.mjs';
import { Deadlines, RANK } from './deadlines.mjs';
import { NestedAcquireError, QueueFullError } from './errors.mjs';
import { areAncestorsOf } from './nesting.mjs';
import { Slots } from './slots.mjs';

/** @import { Clock } from './clock.mjs' */
/** @import { Deadline } from './deadlines.mjs' */
/** @import { NotificationLine } from './notification-line.mjs' */
/** @import { Request } from './request.mjs' */
/** @import { Settings } from './settings.mjs' */

/** @typedef {ReturnType<Provider['status']>} StatusRow */

/**
 * One account at an upstream, and the rules of the limiter: who is granted, what a release and a pause do.
 *
 * The methods that change something expect that the engine has called `catchUp` at the same `now`.
 */
export class Provider {
  #settings;
  #line;
  #deadlines;
  #slots;
  /** @type {number | null} */
  #ownLimit = null;
  /** @type {number | null} */
  #ownCooldown = null;
  /** The end of the running pause. @type {Deadline | null} */
  #pauseEnd = null;
  #closed = false;

  /**
   * @param {string} name
   * @param {Settings} settings
   * @param {Clock} clock
   * @param {NotificationLine} line
   * @param {() => void} wake Called when something may be due.
   */
  constructor(name, settings, clock, line, wake) {
    this.name = name;
    this.#settings = settings;
    this.#line = line;
    this.#deadlines = new Deadlines(clock, wake);
    this.#slots = new Slots(name, this.#deadlines, line);
  }

  // Admission

  get #hasRoom() {
    const limit = this.#ownLimit ?? this.#settings.defaultLimit;
    return limit === null || this.#slots.inFlight < limit;
  }

  get #mayGrant() {
    return this.#pauseEnd === null && this.#hasRoom;
  }

  /**
   * The admission step (ADM-2): the only place where a queued request is granted. To be called after every change
   * that can make room.
   *
   * @param {number} now
   */
  #admit(now) {
    for (let head = this.#slots.head; head && this.#mayGrant; head = this.#slots.head) {
      this.#slots.move(head, 'held', now);
    }
  }

  /**
   * Grants at once, if nobody is queued: there is no barging (ADM-1).
   *
   * @param {Request} request
   * @param {number} now
   */
  tryGrant(request, now) {
    if (this.queuesAny || !this.#mayGrant) return false;
    this.#slots.move(request, 'held', now);
    return true;
  }

  /**
   * @param {Request} request
   * @param {number | null} timeout
   * @param {(() => void) | null} onQueued
   * @param {number} now
   */
  enqueue(request, timeout, onQueued, now) {
    if (this.tryGrant(request, now)) return;
    if (timeout === 0) {
      this.#slots.move(request, 'timed_out', now);
      return;
    }
    const { maxQueued } = this.#settings;
    if (maxQueued !== null && this.#slots.count('queued') >= maxQueued) {
      throw new QueueFullError(`${maxQueued} requests are queued at '${this.name}' already`);
    }
    if (this.#settings.nested === 'raise' && request.ancestors.size > 0 && this.#isSelfBlockedWith(request)) {
      throw new NestedAcquireError(`every slot of '${this.name}' is held by a conversation that would wait for it`);
    }
    this.#slots.move(request, 'queued', now);
    if (timeout !== null) this.#slots.moveAt(request, 'timed_out', now + timeout, RANK.timeout);
    if (onQueued !== null) this.#line.add(onQueued);
  }

  /**
   * Whether all that counts is held by ancestors of those who wait (NST-1): nothing will be free by itself.
   *
   * @param {Request[]} newcomers Who would wait, too.
   */
  #isSelfBlockedWith(...newcomers) {
    const held = this.#slots.in('held');
    if (this.#hasRoom || held.length === 0 || held.length < this.#slots.inFlight) return false;
    return areAncestorsOf(held, [...this.#slots.in('queued'), ...newcomers]);
  }

  // The end of a slot

  /**
   * @param {Request} request A held one.
   * @param {number} now
   */
  release(request, now) {
    this.#slots.move(request, 'cooling', now);
    this.#coolDown(request, now);
    this.#admit(now);
  }

  /**
   * Takes a request out of the queue (CAN-1), or gives back a grant that its caller hasn't received: nothing was sent
   * upstream, so there is no cooldown (CAN-2).
   *
   * @param {Request} request
   * @param {number} now
   */
  cancel(request, now) {
    if (!request.isCancellable) return; // what was due has decided it
    this.#slots.move(request, 'cancelled', now);
    this.#admit(now);
  }

  /**
   * The provider's part of a sweep (WAT-1).
   *
   * @param {number} slotTimeout
   * @param {number} now
   */
  reclaimUntouched(slotTimeout, now) {
    for (const request of this.#slots.in('held')) {
      const untouched = now - request.touchedAt;
      if (untouched > slotTimeout) this.#reclaim(request, untouched, now);
    }
    this.#admit(now);
  }

  /**
   * @param {Request} request
   * @param {number} untouched
   * @param {number} now
   */
  #reclaim(request, untouched, now) {
    const { slot, conversationId } = request;
    const conversation = conversationId === null ? 'no conversation' : `conversation '${conversationId}'`;
    const seconds = (toMs(untouched) / 1000).toFixed(1);
    this.#line.warn(`slot of '${this.name}' reclaimed: ${conversation}, untouched for ${seconds} s`);

    request.reclaimed = true;
    this.#slots.move(request, 'reclaimed', now);
    this.#coolDown(request, now);
    const { onReclaim } = this.#settings;
    if (onReclaim !== null) this.#line.add(() => onReclaim(slot));
  }

  /**
   * The upstream still counts the slot for a while. The end is fixed here: no later setting moves it (REL-3).
   *
   * @param {Request} request
   * @param {number} now
   */
  #coolDown(request, now) {
    const cooldown = this.#closed ? 0 : this.#cooldownInForce();
    if (cooldown === 0) this.#slots.move(request, 'free', now);
    else this.#slots.moveAt(request, 'free', now + cooldown, RANK.cooldown);
  }

  #cooldownInForce() {
    return this.#ownCooldown ?? this.#settings.releaseCooldown;
  }

  // Settings

  get ownLimit() {
    return this.#ownLimit;
  }

  /**
   * @param {number | null} limit
   * @param {number} now
   */
  setLimit(limit, now) {
    this.#ownLimit = limit;
    this.#admit(now);
  }

  /** @param {number | null} cooldown */
  setCooldown(cooldown) {
    this.#ownCooldown = cooldown;
  }

  // Pause

  /**
   * @param {unknown} retryAfterMs
   * @param {number} now
   */
  reportRateLimit(retryAfterMs, now) {
    const length = this.#pauseLength(retryAfterMs);
    this.#line.tell({
      event: 'paused',
      atMs: toMs(now),
      provider: this.name,
      requestedMs: Number.isFinite(retryAfterMs) ? /** @type {number} */ (retryAfterMs) : null,
      appliedMs: toMs(length),
    });
    if (length > 0) this.#pauseUntil(now + length, now);
    else if (this.#pauseEnd === null) this.#tellResumed(now); // a pause of 0 ends in the call that begins it
  }

  /**
   * PAU-2. Never throws, whatever it is given: a 429 is reported in an error path.
   *
   * @param {unknown} retryAfterMs
   */
  #pauseLength(retryAfterMs) {
    const { defaultPause, minPause, maxPause } = this.#settings;
    const isTime = typeof retryAfterMs === 'number' && retryAfterMs >= 0;
    const asked = isTime ? toTicks(retryAfterMs) : defaultPause;
    return Math.min(Math.max(asked, minPause, this.#cooldownInForce()), maxPause);
  }

  /**
   * A pause is only ever extended (PAU-1).
   *
   * @param {number} until
   * @param {number} now
   */
  #pauseUntil(until, now) {
    if (this.#pauseEnd !== null && this.#pauseEnd.at >= until) return;
    this.#dropPause();
    this.#pauseEnd = { at: until, rank: RANK.pause, number: 0, apply: (late) => this.resume(late) };
    this.#deadlines.add(this.#pauseEnd);
    const { onPause } = this.#settings;
    if (onPause !== null) this.#line.add(() => onPause(this.name, toMs(until - now)));
  }

  /** @param {number} now */
  resume(now) {
    if (this.#pauseEnd === null) return;
    this.#dropPause();
    this.#tellResumed(now);
    this.#admit(now);
  }

  #dropPause() {
    if (this.#pauseEnd !== null) this.#deadlines.drop(this.#pauseEnd);
    this.#pauseEnd = null;
  }

  /** @param {number} now */
  #tellResumed(now) {
    this.#line.tell({ event: 'resumed', atMs: toMs(now), provider: this.name });
  }

  // Time

  /**
   * Applies what is due, in the order of the deadlines (TIM-3). What is noticed late happens now (TIM-2).
   *
   * @param {number} now
   */
  catchUp(now) {
    for (let due = this.#deadlines.takeDue(now); due; due = this.#deadlines.takeDue(now)) {
      due.apply(now);
      this.#admit(now);
    }
  }

  /**
   * Sees to being woken at the next deadline.
   *
   * @param {number} now
   */
  rearm(now) {
    this.#deadlines.rearm(now, this.queuesAny);
  }

  /**
   * Only settings and held slots stay (CLO-1).
   *
   * @param {number} now
   */
  close(now) {
    this.#closed = true;
    for (const request of this.#slots.in('queued')) this.#slots.move(request, 'rejected', now);
    for (const request of this.#slots.in('cooling')) this.#slots.move(request, 'free', now);
    for (const request of this.#slots.in('reclaimed')) this.#slots.move(request, 'free', now);
    this.#dropPause();
  }

  // Reading

  get holdsAny() {
    return this.#slots.count('held') > 0;
  }

  get queuesAny() {
    return this.#slots.count('queued') > 0;
  }

  /** Nothing would be lost by forgetting it (ACC-3). */
  get isIdle() {
    const hasSettings = this.#ownLimit !== null || this.#ownCooldown !== null;
    return !hasSettings && this.#slots.inFlight === 0 && !this.queuesAny && this.#pauseEnd === null;
  }

  /** @param {number} now */
  status(now) {
    return {
      provider: this.name,
      limit: this.#ownLimit,
      inFlight: this.#slots.inFlight,
      held: this.#slots.count('held'),
      cooling: this.#slots.count('cooling'),
      reclaimed: this.#slots.count('reclaimed'),
      queued: this.#slots.count('queued'),
      paused: this.#pauseEnd !== null,
      pausedForMs: this.#pauseEnd && toMs(this.#pauseEnd.at - now),
      selfBlocked: this.#isSelfBlockedWith(),
    };
  }
}
