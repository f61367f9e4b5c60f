// How protocol 1 writes things, and what the library calls them.

/** @import { ObservedEvent, Options, StatusRow } from '../lib/index.mjs' */

/** The floats that JSON lacks. Any other text stays one, and is of the wrong type. */
const FLOATS = new Map([
  ['NaN', NaN],
  ['Infinity', Infinity],
  ['-Infinity', -Infinity],
]);

/**
 * A number as it stands on the wire, good or bad. Judging it is the library's work.
 *
 * @param {any} value
 */
export const number = (value) => FLOATS.get(value) ?? value;

/**
 * @param {any} config
 * @returns {Options}
 */
export const optionsFrom = (config) => ({
  releaseCooldownMs: number(config.release_cooldown_ms),
  slotTimeoutMs: number(config.slot_timeout_ms),
  watchdogIntervalMs: number(config.watchdog_interval_ms),
  defaultPauseMs: number(config.default_pause_ms),
  minPauseMs: number(config.min_pause_ms),
  maxPauseMs: number(config.max_pause_ms),
  maxQueued: number(config.max_queued),
  defaultLimit: number(config.default_limit),
  nested: config.nested,
});

/**
 * @param {StatusRow} status
 * @param {boolean} asksForNesting
 */
export function statusRow(status, asksForNesting) {
  const { provider, limit, inFlight, held, cooling, reclaimed, queued, paused, pausedForMs, selfBlocked } = status;
  const row = { provider, limit, in_flight: inFlight, held, cooling, reclaimed, queued, paused, paused_for_ms: pausedForMs };
  return asksForNesting ? { ...row, self_blocked: selfBlocked } : row;
}

/**
 * @param {ObservedEvent} told
 * @param {Map<number, string>} names What the kit calls the library's numbers.
 */
export function eventRow({ event, atMs, provider, request, requestedMs, appliedMs }, names) {
  const at_ms = atMs;
  if (request !== undefined) return { event, at_ms, provider, request: names.get(request) };
  if (event === 'paused') return { event, at_ms, provider, requested_ms: requestedMs, applied_ms: appliedMs };
  return { event, at_ms, provider };
}
