import { realClock } from './clock.mjs';
import { InvalidValueError } from './errors.mjs';
import { count, duration, functionOrNone, oneOf, orNone, positiveDuration, text } from './validation.mjs';

/** @import { Clock } from './clock.mjs' */
/** @import { Slot } from './slot.mjs' */

/**
 * One thing that happened. `request` is the number of a ticket or slot.
 *
 * @typedef {object} ObservedEvent
 * @property {string} event `granted`, `queued`, `timed_out`, `cancelled`, `rejected`, `released`, `reclaimed`,
 *   `recycled`, `paused` or `resumed`.
 * @property {number} atMs On the manager's clock.
 * @property {string} provider
 * @property {number} [request]
 * @property {string | null} [conversationId]
 * @property {number | null} [requestedMs] Of `paused`: what was reported; null if it was no time.
 * @property {number} [appliedMs] Of `paused`: how long this report's pause is.
 */

/**
 * All durations are milliseconds. Null is never "left out": where it isn't named it is refused.
 *
 * @typedef {object} Options
 * @property {number} [releaseCooldownMs] How long the upstream counts a session after its end. Default 200.
 * @property {number | null} [slotTimeoutMs] Untouched for longer, a slot is reclaimed; null: never. Default 5 min.
 * @property {number} [watchdogIntervalMs] How often that is looked at. Default 30 s.
 * @property {number} [defaultPauseMs] The pause after a 429 that says nothing. Default 30 s.
 * @property {number} [minPauseMs] Default 1 s.
 * @property {number} [maxPauseMs] Default 6 h.
 * @property {number | null} [maxQueued] How many may wait at one provider; null: any number. Default null.
 * @property {number | null} [defaultLimit] For providers without a limit of their own; null: none. Default null.
 * @property {'queue' | 'raise'} [nested] What becomes of a request that would wait for itself. Default 'queue'.
 * @property {Record<string, number> | Map<string, number>} [limits]
 * @property {((provider: string, forMs: number) => void) | null} [onPause] A pause began or was extended.
 * @property {((slot: Slot) => void) | null} [onReclaim] The watchdog took a slot away.
 * @property {((event: ObservedEvent) => void) | null} [observer] Told everything, within the call that caused it.
 * @property {Pick<Console, 'warn' | 'error'>} [logger] Default: the console.
 * @property {Clock} [clock] Default: real time.
 */

/** @typedef {ReturnType<typeof settingsFrom>} Settings */

/**
 * Judges a manager's options. Durations become ticks here, and are ticks everywhere behind.
 *
 * @param {Options} options
 */
export function settingsFrom(options) {
  const {
    releaseCooldownMs = 200,
    slotTimeoutMs = 300_000,
    watchdogIntervalMs = 30_000,
    defaultPauseMs = 30_000,
    minPauseMs = 1000,
    maxPauseMs = 21_600_000,
    maxQueued = null,
    defaultLimit = null,
    nested = 'queue',
    limits = {},
    onPause = null,
    onReclaim = null,
    observer = null,
    logger = console,
    clock = realClock,
  } = options;
  const settings = {
    releaseCooldown: duration('releaseCooldownMs', releaseCooldownMs),
    slotTimeout: orNone(positiveDuration, 'slotTimeoutMs', slotTimeoutMs),
    watchdogInterval: positiveDuration('watchdogIntervalMs', watchdogIntervalMs),
    defaultPause: positiveDuration('defaultPauseMs', defaultPauseMs),
    minPause: duration('minPauseMs', minPauseMs),
    maxPause: positiveDuration('maxPauseMs', maxPauseMs),
    maxQueued: orNone(count, 'maxQueued', maxQueued),
    defaultLimit: orNone(count, 'defaultLimit', defaultLimit),
    nested: oneOf(['queue', 'raise'], 'nested', nested),
    limits: limitsFrom(limits),
    onPause: /** @type {typeof onPause} */ (functionOrNone('onPause', onPause)),
    onReclaim: /** @type {typeof onReclaim} */ (functionOrNone('onReclaim', onReclaim)),
    observer: /** @type {typeof observer} */ (functionOrNone('observer', observer)),
    logger,
    clock,
  };
  if (settings.minPause > settings.defaultPause) {
    throw new InvalidValueError('minPauseMs must be at most defaultPauseMs');
  }
  if (settings.defaultPause > settings.maxPause) {
    throw new InvalidValueError('defaultPauseMs must be at most maxPauseMs');
  }
  return settings;
}

/**
 * @param {Record<string, number> | Map<string, number>} limits
 * @returns {[string, number][]}
 */
function limitsFrom(limits) {
  const pairs = limits instanceof Map ? [...limits] : Object.entries(limits);
  return pairs.map(([provider, limit]) => [text('provider', provider), count(`limits of '${provider}'`, limit)]);
}
