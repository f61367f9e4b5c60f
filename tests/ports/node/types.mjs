// @ts-check

/** The shapes that go in and out of the limiter; all durations are milliseconds. */

/**
 * @typedef {import('./requests.mjs').Slot} Slot
 * @typedef {'queued' | 'held' | 'cooling' | 'reclaimed' | 'free' | 'cancelled' | 'timed_out' | 'rejected'} SlotState
 * @typedef {(
 *   'granted' | 'queued' | 'timed_out' | 'cancelled' | 'rejected' | 'released' | 'reclaimed' | 'recycled'
 * )} SlotEvent
 *
 * @typedef {object} ManagerOptions
 * @property {number} [releaseCooldown] how long a released slot still counts; 200
 * @property {number | null} [slotTimeout] untouched for longer, a held slot is reclaimed; 300 000; null: never
 * @property {number} [watchdogInterval] how often the watchdog looks; 30 000
 * @property {number} [defaultPause] after a 429 that doesn't say how long; 30 000
 * @property {number} [minPause] 1000
 * @property {number} [maxPause] 21 600 000
 * @property {number | null} [maxQueued] how many may wait at a provider; null: any number
 * @property {number | null} [defaultLimit] for providers without a limit of their own; null: none
 * @property {'queue' | 'raise'} [nested] what becomes of a request that would wait for its own ancestors; queue
 * @property {Record<string, number>} [limits] limits to begin with
 * @property {(slot: Slot) => unknown} [onReclaim] the watchdog took this slot away
 * @property {(provider: string, ms: number) => unknown} [onPause] a pause begins or is extended, for so long from now
 * @property {(event: ManagerEvent) => unknown} [observer] is told every event
 * @property {Logger} [logger] the console
 * @property {import('./system-clock.mjs').Clock} [clock]
 *
 * @typedef {{warn(...what: unknown[]): void, error(...what: unknown[]): void}} Logger
 *
 * @typedef {object} AcquireOptions
 * @property {string | null} [conversationId] for reports, and for whom a nested request waits (NST-1); never a key
 * @property {number} [promptStartedAt] smaller is older and goes first; by default epoch seconds now
 *
 * @typedef {object} WaitOptions
 * @property {number | null} [timeout] how long to wait at most; 0: not at all
 * @property {AbortSignal | null} [signal] leaves the queue; once the slot is received it has no effect
 * @property {string[]} [path] the conversations that the request is made inside of, the outermost first
 * @property {() => unknown} [onQueued] the request can't be granted at once and waits
 *
 * @typedef {object} Status
 * @property {string} provider
 * @property {number | null} limit its own
 * @property {number} inFlight what the upstream may still count: held, cooling and reclaimed
 * @property {number} held
 * @property {number} cooling
 * @property {number} reclaimed
 * @property {number} queued
 * @property {boolean} paused
 * @property {number | null} pausedFor milliseconds from now
 * @property {number | null} pausedUntil epoch milliseconds, for people
 * @property {boolean} selfBlocked all slots are held by ancestors of requests that wait here (NST-1)
 *
 * @typedef {(
 *   | {event: SlotEvent, at: number, provider: string, request: number, conversationId: string | null}
 *   | {event: 'paused', at: number, provider: string, requested: number | null, applied: number}
 *   | {event: 'resumed', at: number, provider: string}
 * )} ManagerEvent `at`, `requested` and `applied` in milliseconds, `at` since the manager was made; `request` is the
 *   arrival number, which ticket and slot show, too
 */

export {};
