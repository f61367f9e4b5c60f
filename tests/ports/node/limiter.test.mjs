// @ts-check

/**
 * What protocol 1 can't show: promises and signals, the real clock, and what keeps a process alive.
 *
 *     node --test tests/ports/node
 *
 * Everything else is judged by the kit, which runs `driver.mjs`.
 */

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { test } from 'node:test';

import { AcquireTimeoutError, ConcurrencyManager, ManagerClosedError, QueueFullError } from './limiter.mjs';
import { VirtualClock } from './virtual-clock.mjs';

const turn = () => new Promise((resolve) => void setImmediate(resolve));

/** @param {import('./types.mjs').ManagerOptions} [options] */
function make(options) {
  const clock = new VirtualClock();
  /** @type {string[]} */
  const said = [];
  const logger = {
    warn: (/** @type {any} */ text) => said.push(`warn: ${text}`),
    error: (/** @type {any} */ text, /** @type {any} */ error) => said.push(`error: ${text} ${error.message}`),
  };
  const manager = new ConcurrencyManager({ limits: { p: 1 }, clock, logger, ...options });
  /** @param {number} ms */
  const advance = async (ms) => {
    clock.moveToMs(clock.nowMs + ms);
    do {
      clock.fireDue();
      await turn();
    } while (clock.runTurn());
  };
  return { clock, manager, said, advance };
}

test('acquire waits for the slot that is released, withSlot releases whatever happens', async () => {
  const { manager } = make({ releaseCooldown: 0 });
  const first = await manager.acquire('p');
  const failing = manager.withSlot('p', {}, async () => {
    throw new Error('upstream');
  });
  first.release();
  await assert.rejects(failing, /upstream/);
  assert.equal(manager.status('p')?.inFlight, 0);
});

test('every reason for leaving the queue is an error of its own', async () => {
  const { manager, advance } = make({ maxQueued: 2 });
  await manager.acquire('p');
  const abort = new AbortController();
  const cancelled = manager.acquire('p', { signal: abort.signal });
  const late = manager.acquire('p', { timeout: 20 });
  await assert.rejects(manager.acquire('p'), QueueFullError);
  abort.abort(new Error('user went away'));
  await assert.rejects(cancelled, /user went away/);
  const rejected = manager.acquire('p');
  const isLate = assert.rejects(late, AcquireTimeoutError);
  await advance(20);
  await isLate;
  manager.close();
  await assert.rejects(rejected, ManagerClosedError);
  await assert.rejects(manager.acquire('p', { timeout: -1 }), ManagerClosedError);
});

test('a signal that has aborted before refuses the request, and nothing has changed', async () => {
  const { manager } = make();
  await assert.rejects(manager.acquire('p', { signal: AbortSignal.abort() }), { name: 'AbortError' });
  assert.equal(manager.status('p')?.inFlight, 0);
});

test('a signal that aborts between the grant and its receipt gives the slot back (CAN-2)', async () => {
  const { manager } = make({ releaseCooldown: 0 });
  const first = await manager.acquire('p');
  const abort = new AbortController();
  const second = manager.acquire('p', { signal: abort.signal });
  const third = manager.acquire('p');
  first.release(); // the second has the slot, but its caller hasn't run
  abort.abort();
  await assert.rejects(second, { name: 'AbortError' });
  assert.equal((await third).number, 3);
});

test('a signal leaves a slot alone that was received', async () => {
  const { manager } = make();
  const abort = new AbortController();
  const slot = await manager.acquire('p', { signal: abort.signal });
  abort.abort();
  assert.equal(slot.state, 'held');
});

test('many may wait with one signal, which keeps none of them afterwards', async () => {
  const { manager } = make({ releaseCooldown: 0 });
  const first = await manager.acquire('p');
  const abort = new AbortController();
  const warnings = /** @type {Error[]} */ ([]);
  process.on('warning', (warning) => warnings.push(warning));
  const waiting = Array.from({ length: 20 }, () => manager.withSlot('p', { signal: abort.signal }, () => {}));
  first.release();
  await Promise.all(waiting);
  abort.abort();
  await turn();
  assert.deepEqual(warnings, []);
  assert.equal(manager.status('p')?.inFlight, 0);
});

test('a callback that fails, at once or later, is reported once and changes nothing (CAL-4)', async () => {
  const { manager, said } = make({
    onPause: async () => {
      throw new Error('later');
    },
  });
  manager.reportRateLimit('p', 1000);
  const onQueued = () => {
    throw new Error('at once');
  };
  const waiting = manager.enqueue('p', { onQueued });
  await turn();
  assert.equal(waiting.state, 'queued');
  assert.deepEqual(said.sort(), [
    'error: a callback of the concurrency manager failed: at once',
    'error: a callback of the concurrency manager failed: later',
  ]);
});

test('a reclaim is logged, and the holder can see it (WAT-3, WAT-5)', async () => {
  const { manager, said, advance } = make({ slotTimeout: 5000, watchdogInterval: 1000 });
  const slot = await manager.acquire('p', { conversationId: 'c9' });
  await advance(6000);
  assert.equal(slot.reclaimed, true);
  assert.deepEqual(said, ['warn: slot of "p" reclaimed: conversation "c9", untouched for 6.0 s']);
});

test('a holder that was held back by a stall may touch before the sweep judges (WAT-1)', async () => {
  const { clock, manager } = make({ slotTimeout: 5000, watchdogInterval: 1000 });
  const slot = await manager.acquire('p');
  clock.moveToMs(60_000);
  clock.fireDue();
  await turn();
  slot.touch();
  while (clock.runTurn());
  assert.equal(slot.reclaimed, false);
});

test('an early timer changes nothing and is started again (TIM-2)', async () => {
  const { clock, manager } = make();
  const start = clock.startTimer.bind(clock);
  clock.startTimer = (ticks, callback) => start(Math.ceil(ticks / 2), callback);
  manager.reportRateLimit('p', 1000);
  const waiting = manager.enqueue('p');
  let wakings = 0;
  while (waiting.state === 'queued') {
    clock.moveToMs(clock.nextDueMs);
    clock.fireDue();
    wakings += 1;
  }
  assert.equal(clock.nowMs, 1000);
  assert.ok(wakings > 10);
});

test('idle providers are forgotten though nothing tells of the end of their cooldowns (ACC-3)', async () => {
  const { clock, manager } = make({ slotTimeout: null, limits: {} });
  for (let i = 0; i < 10_000; i += 1) {
    manager.tryAcquire(`one-off ${i}`)?.release();
    clock.moveToMs(clock.nowMs + 100);
  }
  assert.equal(clock.liveTimers, 0);
  assert.deepEqual(manager.statuses().map((status) => status.provider), ['one-off 9999']);
});

test('waitClosed returns when the last slot is released', async () => {
  const { manager } = make();
  const slot = await manager.acquire('p');
  manager.close();
  let isOver = false;
  const over = manager.waitClosed().then(() => (isOver = true));
  await turn();
  assert.equal(isOver, false);
  slot.release();
  await over;
  await assert.rejects(make().manager.waitClosed({ signal: AbortSignal.abort() }), { name: 'AbortError' });
});

test('in real time nothing is early', async () => {
  const manager = new ConcurrencyManager({ limits: { p: 1 }, releaseCooldown: 40 });
  const slot = await manager.acquire('p');
  const waiting = manager.acquire('p');
  const releasedAt = performance.now();
  slot.release();
  await waiting;
  assert.ok(performance.now() - releasedAt >= 40);
  manager.close();
});

/** @param {string} program what a process of its own does with a manager */
function run(program) {
  const url = new URL('limiter.mjs', import.meta.url);
  const source = `import { ConcurrencyManager } from ${JSON.stringify(url.href)};\n${program}`;
  return execFileSync(process.execPath, ['--input-type=module', '-e', source], { encoding: 'utf8', timeout: 20_000 });
}

test('a held slot and a pause keep no process alive, and a far timer does not fire at once', () => {
  const said = run(`
    const manager = new ConcurrencyManager({ maxPause: 1e12, observer: (event) => console.log(event.event) });
    await manager.acquire('p');
    manager.reportRateLimit('p', 2 ** 33);
    await new Promise((resolve) => setTimeout(resolve, 30));
  `);
  assert.equal(said, 'granted\npaused\n');
});

test('a process lives on while somebody waits for the watchdog', () => {
  const said = run(`
    const logger = { warn() {}, error() {} };
    const manager = new ConcurrencyManager({ limits: { p: 1 }, slotTimeout: 40, watchdogInterval: 40, logger });
    await manager.acquire('p');
    await manager.acquire('p');
    console.log('granted');
  `);
  assert.equal(said, 'granted\n');
});
