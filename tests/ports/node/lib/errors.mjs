// Every refusal and every unlucky end has a class of its own and a `code`, so that nobody has to read messages.

export class ManagerClosedError extends Error {
  name = 'ManagerClosedError';
  code = 'ERR_CONCURRENCY_CLOSED';
}

export class QueueFullError extends Error {
  name = 'QueueFullError';
  code = 'ERR_CONCURRENCY_QUEUE_FULL';
}

/** Every slot is held by somebody who waits for this request (NST-1). */
export class NestedAcquireError extends Error {
  name = 'NestedAcquireError';
  code = 'ERR_CONCURRENCY_NESTED';
}

export class AcquireTimeoutError extends Error {
  name = 'AcquireTimeoutError';
  code = 'ERR_CONCURRENCY_TIMEOUT';
}

/** An argument of the wrong type. A class of its own, lest a slip in a callback passes for a refusal. */
export class InvalidTypeError extends TypeError {
  name = 'InvalidTypeError';
  code = 'ERR_CONCURRENCY_INVALID';
}

/** An argument of the right type with an illegal value. */
export class InvalidValueError extends RangeError {
  name = 'InvalidValueError';
  code = 'ERR_CONCURRENCY_INVALID';
}
