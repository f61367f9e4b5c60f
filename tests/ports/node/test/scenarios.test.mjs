// The scenario files of the specification, through the driver's own `answer`: no process, no kit.

import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { test } from 'node:test';

import { Port } from '../driver/port.mjs';
import { compare } from './compare.mjs';

const FOLDER = new URL('../../../../spec/provider_concurrency_spec/scenarios/', import.meta.url);

const DEFAULTS = {
  release_cooldown_ms: 200,
  slot_timeout_ms: 300_000,
  watchdog_interval_ms: 30_000,
  default_pause_ms: 30_000,
  min_pause_ms: 1000,
  max_pause_ms: 21_600_000,
  max_queued: null,
  default_limit: null,
};

for (const file of readdirSync(FOLDER)) {
  const scenario = JSON.parse(readFileSync(new URL(file, FOLDER), 'utf8'));
  test(`${scenario.rules.join(' ')}: ${scenario.name}`, async () => {
    const port = new Port();
    for (const config of scenario.refused_configs ?? []) {
      const reply = /** @type {any} */ (await port.answer({ cmd: 'new', config: { ...DEFAULTS, ...config } }));
      assert.equal(reply.error?.kind, 'invalid', JSON.stringify(config));
    }
    await port.answer({ cmd: 'new', config: { ...DEFAULTS, ...scenario.config } });
    for (const step of scenario.steps) compare(await port.answer(messageOf(step)), step.expect);
  });
}

/** @param {any} step */
function messageOf(step) {
  if (step.do) return { cmd: 'do', ops: step.do };
  if (step.advance_ms !== undefined) return { cmd: 'advance', ms: step.advance_ms };
  return { cmd: 'stall', ms: step.stall_ms };
}
