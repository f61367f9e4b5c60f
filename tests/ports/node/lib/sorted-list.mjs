/**
 * A list in the order of `compare`, under which no two entries may be equal.
 *
 * An array with binary search: what is added mostly belongs near the end, the first is taken most, and any entry can
 * be taken out at once, which a heap can't (a cancelled request must leave its queue at that moment, CAN-1).
 *
 * @template T
 */
export class SortedList {
  #compare;
  /** @type {T[]} */
  #entries = [];

  /** @param {(a: T, b: T) => number} compare */
  constructor(compare) {
    this.#compare = compare;
  }

  get size() {
    return this.#entries.length;
  }

  /** @returns {T | undefined} */
  get first() {
    return this.#entries[0];
  }

  /** @param {T} entry */
  add(entry) {
    this.#entries.splice(this.#placeOf(entry), 0, entry);
  }

  /** @param {T} entry */
  delete(entry) {
    const place = this.#placeOf(entry);
    if (this.#entries[place] === entry) this.#entries.splice(place, 1);
  }

  [Symbol.iterator]() {
    return this.#entries.values();
  }

  /**
   * The index of the first entry that isn't before this one.
   *
   * @param {T} entry
   */
  #placeOf(entry) {
    let low = 0;
    let high = this.#entries.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.#compare(this.#entries[middle], entry) < 0) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
