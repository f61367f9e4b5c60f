// The real clock and Node's own habits: timers that are early, processes that should end, signals that many share.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { test } from 'node:test';
import { promisify } from 'node:util';

import { ConcurrencyManager } from '../lib/index.mjs';

const run = promisify(execFile);
const LIBRARY = new URL('../lib/index.mjs', import.meta.url).href;

/** Runs a program of its own, which may use ConcurrencyManager. @param {string} program */
function node(program) {
  const code = `import { ConcurrencyManager } from ${JSON.stringify(LIBRARY)};\n${program}`;
  return run(process.execPath, ['--input-type=module', '--eval', code], { timeout: 20_000 });
}

test('never early: cooldowns of real time, one after another', async () => {
  const manager = new ConcurrencyManager({ limits: { p: 1 }, releaseCooldownMs: 7 });
  let releasedAt = -Infinity;
  await Promise.all(
    Array.from({ length: 30 }, () =>
      manager.run('p', () => {
        assert.ok(performance.now() - releasedAt >= 7);
        releasedAt = performance.now();
      }),
    ),
  );
});

test('a slot is disposable, and its work may fail', async () => {
  const manager = new ConcurrencyManager({ releaseCooldownMs: 0 });
  const slot = await manager.acquire('p');
  slot[Symbol.dispose]();
  assert.equal(slot.state, 'free');
  await assert.rejects(manager.run('p', () => Promise.reject(new Error('upstream'))), /upstream/);
  assert.deepEqual(manager.statuses(), []);
});

test('a hundred requests may wait with one signal, without a warning and without a trace', async () => {
  const { stdout, stderr } = await node(`
    import { getEventListeners } from 'node:events';
    const manager = new ConcurrencyManager({ limits: { p: 0 } });
    const abort = new AbortController();
    const waiting = Array.from({ length: 100 }, () => manager.acquire('p', { signal: abort.signal }));
    abort.abort();
    const ends = await Promise.allSettled(waiting);
    console.log(ends.every(({ reason }) => reason.name === 'AbortError'), getEventListeners(abort.signal, 'abort').length);
  `);
  assert.equal(stdout, 'true 0\n');
  assert.equal(stderr, '');
});

test('a held slot, a cooldown and a pause keep no process alive', async () => {
  const started = performance.now();
  const { stderr } = await node(`
    const manager = new ConcurrencyManager({ releaseCooldownMs: 60_000, maxPauseMs: 1e12 });
    await manager.acquire('held');
    (await manager.acquire('cooling')).release();
    manager.reportRateLimit('paused', 2 ** 33); // uncapped, Node would warn and wake after 1 ms
  `);
  assert.ok(performance.now() - started < 15_000);
  assert.equal(stderr, '');
});

test('a process stays alive for the reclaim that somebody waits for', async () => {
  const { stdout } = await node(`
    const manager = new ConcurrencyManager({
      limits: { p: 1 }, releaseCooldownMs: 10, slotTimeoutMs: 50, watchdogIntervalMs: 20, logger: { warn() {}, error() {} },
    });
    await manager.acquire('p'); // and lost
    const slot = await manager.acquire('p');
    console.log(slot.state);
  `);
  assert.equal(stdout, 'held\n');
});
