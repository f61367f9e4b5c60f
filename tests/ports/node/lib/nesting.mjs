// Who waits for itself (NST-1): a parent holds a slot, asks for another on behalf of its child, and waits.

/** @import { Request } from './request.mjs' */

/**
 * The conversations around a request, its own left out: the one that it names, else the innermost.
 *
 * @param {string | null} conversationId
 * @param {string[]} path The outermost first.
 */
export function ancestorsOf(conversationId, path) {
  const ancestors = new Set(path);
  const own = conversationId ?? path.at(-1);
  if (own !== undefined) ancestors.delete(own);
  return ancestors;
}

/**
 * Whether each held slot belongs to an ancestor of somebody who waits. One without a conversation is nobody's.
 *
 * @param {Request[]} held
 * @param {Request[]} waiting
 */
export function areAncestorsOf(held, waiting) {
  const ancestors = new Set(waiting.flatMap((request) => [...request.ancestors]));
  return held.every(({ conversationId }) => conversationId !== null && ancestors.has(conversationId));
}
