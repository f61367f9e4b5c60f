/**
 * One real listener for each signal, however many requests wait with it: Node warns of a leak from the eleventh
 * listener on, and a signal for a whole server's shutdown may rightly have thousands.
 *
 * @type {WeakMap<AbortSignal, Set<() => void>>}
 */
const callbacksOf = new WeakMap();

/**
 * @param {AbortSignal} signal
 * @param {() => void} callback Called once, in the call of `abort()`.
 * @returns {() => void} Takes the callback away again.
 */
export function onAbort(signal, callback) {
  let callbacks = callbacksOf.get(signal);
  if (callbacks === undefined) {
    callbacks = new Set();
    callbacksOf.set(signal, callbacks);
  }
  signal.addEventListener('abort', callAll); // added twice it is still one
  callbacks.add(callback);
  return () => {
    if (callbacks.delete(callback) && callbacks.size === 0) signal.removeEventListener('abort', callAll);
  };
}

/** @param {Event} event */
function callAll(event) {
  const callbacks = /** @type {Set<() => void>} */ (callbacksOf.get(/** @type {AbortSignal} */ (event.target)));
  // A set, walked while it shrinks: who has left because of an earlier callback isn't called any more.
  for (const callback of callbacks) callback();
}
