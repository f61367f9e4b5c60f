// @ts-check

/**
 * A binary heap whose members can also be taken out of the middle in O(log n): a waiter that is cancelled leaves at
 * that moment (CAN-1), not when its turn would have come.
 *
 * Each member stores its place under `placeKey`; an object may stand in two heaps at once under two keys.
 *
 * @template T
 */
export class Heap {
  /** @type {T[]} */
  #items = [];
  #isBefore;
  #placeKey;

  /**
   * @param {(a: T, b: T) => boolean} isBefore a strict total order
   * @param {keyof T} placeKey the members' property that this heap may use
   */
  constructor(isBefore, placeKey) {
    this.#isBefore = isBefore;
    this.#placeKey = placeKey;
  }

  get size() {
    return this.#items.length;
  }

  /** The first member, or undefined when there is none. */
  get first() {
    return /** @type {T | undefined} */ (this.#items[0]);
  }

  /** @param {T} item */
  add(item) {
    this.#items.push(item);
    this.#raise(item, this.#items.length - 1);
  }

  /** @param {T} item a member of this heap */
  remove(item) {
    const place = this.#placeOf(item);
    const last = /** @type {T} */ (this.#items.pop());
    if (last === item) return;
    // The last member takes the free place and moves to where it belongs: up or down, never both.
    this.#sink(last, place);
    this.#raise(last, this.#placeOf(last));
  }

  /** All members in order; the heap stays as it is. */
  sorted() {
    return [...this.#items].sort((a, b) => (this.#isBefore(a, b) ? -1 : 1));
  }

  /** @param {T} item */
  #placeOf(item) {
    return /** @type {number} */ (item[this.#placeKey]);
  }

  /** @param {T} item @param {number} place */
  #put(item, place) {
    this.#items[place] = item;
    item[this.#placeKey] = /** @type {any} */ (place);
  }

  /** @param {T} item @param {number} place */
  #raise(item, place) {
    while (place > 0) {
      const above = (place - 1) >> 1;
      if (!this.#isBefore(item, this.#items[above])) break;
      this.#put(this.#items[above], place);
      place = above;
    }
    this.#put(item, place);
  }

  /** @param {T} item @param {number} place */
  #sink(item, place) {
    const size = this.#items.length;
    for (let below = 2 * place + 1; below < size; below = 2 * place + 1) {
      if (below + 1 < size && this.#isBefore(this.#items[below + 1], this.#items[below])) below += 1;
      if (!this.#isBefore(this.#items[below], item)) break;
      this.#put(this.#items[below], place);
      place = below;
    }
    this.#put(item, place);
  }
}
