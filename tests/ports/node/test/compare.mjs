import assert from 'node:assert/strict';

/**
 * Compares a reply with what a scenario's step expects, as far as it expects anything (PORTING.md, "What is compared").
 *
 * @param {any} reply
 * @param {any} expected
 */
export function compare(reply, expected) {
  if (expected.events) assert.deepEqual(ordered(reply.events), ordered(expected.events));
  if (expected.status) assert.deepEqual(byText(reply.status), byText(expected.status));
  if (expected.unsettled) assert.deepEqual(reply.unsettled.toSorted(), expected.unsettled.toSorted());
  if (expected.timers !== undefined) assert.equal(reply.timers, expected.timers);
  if (expected.timers_max !== undefined) assert.ok(reply.timers <= expected.timers_max, `${reply.timers} timers`);
}

/**
 * What of the order of events is promised: the grants of a provider at one time, and the events of each request.
 *
 * @param {any[]} events
 */
function ordered(events) {
  const errors = events.filter(({ event }) => event === 'error');
  const others = events.filter(({ event }) => event !== 'error');
  return {
    grants: grouped(others.filter(({ event }) => event === 'granted'), (row) => `${row.provider} ${row.at_ms}`),
    requests: grouped(others.filter(({ request }) => request !== undefined), (row) => row.request),
    rest: byText(others.filter(({ request }) => request === undefined)),
    errors: byText(errors),
  };
}

/**
 * @param {any[]} rows
 * @param {(row: any) => string} key
 */
function grouped(rows, key) {
  /** @type {Map<string, any[]>} */
  const groups = new Map();
  for (const row of rows) groups.set(key(row), [...(groups.get(key(row)) ?? []), row]);
  return groups;
}

/**
 * In the order of their texts, with their members in order: as a multiset.
 *
 * @param {object[]} rows
 */
function byText(rows) {
  return rows.map((row) => JSON.stringify(Object.entries(row).sort())).sort();
}
