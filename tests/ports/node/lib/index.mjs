export { ConcurrencyManager } from './manager.mjs';
export {
  AcquireTimeoutError,
  InvalidTypeError,
  InvalidValueError,
  ManagerClosedError,
  NestedAcquireError,
  QueueFullError,
} from './errors.mjs';

/** @typedef {import('./clock.mjs').Clock} Clock */
/** @typedef {import('./manager.mjs').RequestOptions} RequestOptions */
/** @typedef {import('./manager.mjs').WaitOptions} WaitOptions */
/** @typedef {import('./provider.mjs').StatusRow} StatusRow */
/** @typedef {import('./settings.mjs').ObservedEvent} ObservedEvent */
/** @typedef {import('./settings.mjs').Options} Options */
/** @typedef {import('./slot.mjs').Slot} Slot */
/** @typedef {import('./ticket.mjs').Ticket} Ticket */
