// What protocol 1 can't show, and what a reader may want to see first.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { AcquireTimeoutError, ConcurrencyManager, ManagerClosedError } from '../lib/index.mjs';
import { VirtualClock } from '../testing/virtual-clock.mjs';

/** @import { Options } from '../lib/index.mjs' */

/** @param {Options} [options] */
function setUp(options) {
  const clock = new VirtualClock();
  /** @type {string[]} */
  const log = [];
  const logger = {
    warn: (/** @type {unknown[]} */ ...words) => void log.push(words.join(' ')),
    error: (/** @type {unknown[]} */ ...words) => void log.push(words.join(' ')),
  };
  return { clock, log, manager: new ConcurrencyManager({ clock, logger, ...options }) };
}

test('a released slot counts for its cooldown, then the oldest prompt has it', async () => {
  const { clock, manager } = setUp({ limits: { p: 1 } });
  const first = await manager.acquire('p');
  const young = manager.acquire('p', { promptStartedAt: 2 });
  const old = manager.acquire('p', { promptStartedAt: 1 });

  first.release();
  await clock.advance(199.999);
  assert.equal(manager.status('p')?.cooling, 1);

  await clock.advance(0.001);
  (await old).release();
  await clock.advance(200);
  (await young).release();
});

test('CAN-2: a grant whose caller is cancelled before it runs goes to the next', async () => {
  const { manager } = setUp({ limits: { p: 1 }, releaseCooldownMs: 0 });
  const abort = new AbortController();
  const first = await manager.acquire('p');
  const second = manager.acquire('p', { signal: abort.signal });
  const third = manager.acquire('p');

  first.release(); // second is granted, but its caller hasn't run
  abort.abort(new Error('enough'));

  await assert.rejects(second, /enough/);
  assert.equal((await third).state, 'held');
});

test('CAN-1: a signal that was aborted before changes nothing', async () => {
  const { manager } = setUp();
  await assert.rejects(manager.acquire('p', { signal: AbortSignal.abort() }), { name: 'AbortError' });
  assert.deepEqual(manager.statuses(), []);
});

test('CAN-3: a timeout', async () => {
  const { clock, manager } = setUp({ limits: { p: 0 } });
  const waiting = manager.acquire('p', { timeoutMs: 50 });
  const rejected = assert.rejects(waiting, AcquireTimeoutError);
  await clock.advance(50);
  await rejected;
  assert.equal(clock.liveTimers, 0);
});

test('CLO-2: waitClosed returns when no slot is held any more', async () => {
  const { clock, manager } = setUp({ limits: { p: 1 } });
  const slot = await manager.acquire('p');
  const rejected = assert.rejects(manager.acquire('p'), ManagerClosedError);
  let ended = false;
  manager.waitClosed().then(() => {
    ended = true;
  });

  manager.close();
  await rejected;
  await clock.settle();
  assert.equal(ended, false);

  slot.release();
  await clock.settle();
  assert.equal(ended, true);
});

test('WAT-5: a reclaim is logged as a warning', async () => {
  const { clock, log, manager } = setUp({ slotTimeoutMs: 5000, watchdogIntervalMs: 1000 });
  const slot = await manager.acquire('umans', { conversationId: 'c9' });
  await clock.advance(6000);
  assert.equal(slot.reclaimed, true);
  assert.deepEqual(log, ["slot of 'umans' reclaimed: conversation 'c9', untouched for 6.0 s"]);
});

test('WAT-1: a sweep lets what a stall held back show life first', async () => {
  const { clock, manager } = setUp({ slotTimeoutMs: 5000, watchdogIntervalMs: 1000 });
  const slot = await manager.acquire('p');
  const chunkArrives = new Promise((resolve) => clock.nextTurn(() => resolve(slot.touch())));
  await clock.stall(10_000);
  await chunkArrives;
  assert.equal(slot.reclaimed, false);
});

test('TIM-2: a sweep whose timer fires early comes at its time', async () => {
  class HastyClock extends VirtualClock {
    /**
     * @param {number} delay
     * @param {() => void} callback
     */
    startTimer(delay, callback) {
      return super.startTimer(Math.ceil(delay / 2), callback);
    }
  }
  const clock = new HastyClock();
  const { manager } = setUp({ clock, slotTimeoutMs: 5000, watchdogIntervalMs: 6000 });
  const slot = await manager.acquire('p');
  await clock.advance(5999.999);
  assert.equal(slot.reclaimed, false);
  await clock.advance(0.001);
  assert.equal(slot.reclaimed, true);
});

test('CAL-4: a failing callback is reported once and changes nothing, also when it fails later', async () => {
  const onPause = async () => {
    throw new Error('oops');
  };
  const { clock, log, manager } = setUp({ onPause });
  manager.reportRateLimit('p', 5000);
  await clock.settle();
  assert.equal(manager.status('p')?.pausedForMs, 5000);
  assert.equal(log.length, 1);
  assert.match(log[0], /callback failed.*oops/);
});

test('TIM-1: a clock that goes back is held at its last value', async () => {
  class SkewedClock extends VirtualClock {
    skew = 0;
    now() {
      return super.now() - this.skew;
    }
  }
  const clock = new SkewedClock();
  const { manager } = setUp({ clock });
  await clock.advance(100);
  manager.reportRateLimit('p', 5000);
  clock.skew = 50_000;
  assert.equal(manager.status('p')?.pausedForMs, 5000);
});

test('ACC-3: nothing is left of idle providers', async () => {
  const { clock, manager } = setUp();
  for (let i = 0; i < 100; i += 1) (await manager.acquire(`provider ${i}`)).release();
  assert.equal(manager.statuses().length, 100);
  await clock.advance(30_000);
  assert.deepEqual(manager.statuses(), []);
  assert.equal(clock.liveTimers, 0);
});

test('ACC-3: a provider that was forgotten is new when it comes back', async () => {
  const { manager } = setUp({ releaseCooldownMs: 0 });
  const slot = await manager.acquire('p');
  await manager.acquire('q');
  slot.release();
  await manager.acquire('p');
  assert.deepEqual(manager.statuses().map(({ provider }) => provider), ['q', 'p']);
});
