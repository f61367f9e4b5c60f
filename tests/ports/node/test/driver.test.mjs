// The driver as a process: lines, and what is no message.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const DRIVER = fileURLToPath(new URL('../driver.mjs', import.meta.url));

/**
 * @param {Buffer[]} chunks Each is written when the one before was answered.
 * @returns {Promise<{ code: number | null, replies: any[] }>}
 */
async function talk(...chunks) {
  const driver = spawn(process.execPath, [DRIVER], { stdio: ['pipe', 'pipe', 'inherit'] });
  const closed = once(driver, 'close');
  let output = '';
  driver.stdout.setEncoding('utf8').on('data', (text) => {
    output += text;
  });
  for (const chunk of chunks) {
    driver.stdin.write(chunk);
    await once(driver.stdout, 'data');
  }
  driver.stdin.end();
  const [code] = await closed;
  return { code, replies: output.split('\n').filter(Boolean).map((line) => JSON.parse(line)) };
}

const CONFIG =
  '{"release_cooldown_ms":0,"slot_timeout_ms":5000,"watchdog_interval_ms":1000,"default_pause_ms":30000,' +
  '"min_pause_ms":0,"max_pause_ms":60000,"max_queued":null,"default_limit":null}';

test('lines may be cut anywhere, and hold any text', async () => {
  const name = '\u2028 \u{1F40E} __proto__';
  const messages = Buffer.from(
    `{"id":0,"cmd":"new","config":${CONFIG}}\n` +
      `{"id":1,"cmd":"do","ops":[{"op":"set_limit","provider":"${name}","limit":1}]}\n{"id":2,"cmd":"bye"}\n`,
  );
  const horse = messages.indexOf(Buffer.from('\u{1F40E}'));
  const { code, replies } = await talk(messages.subarray(0, horse + 2), messages.subarray(horse + 2));
  assert.equal(code, 0);
  assert.equal(replies[1].status[0].provider, name);
});

test('what is no message gets an error, and the port lives on', async () => {
  const { code, replies } = await talk(
    Buffer.from(
      `not JSON\n{"id":1,"cmd":"dance"}\n{"id":2,"cmd":"do","ops":[]}\n{"id":3,"cmd":"new","config":${CONFIG}}\n`,
    ),
  );
  assert.equal(code, 0);
  const messages = replies.map(({ id, error }) => [id, error?.message]);
  assert.equal(messages[0][0], null);
  assert.match(messages[0][1], /JSON/);
  assert.match(messages[1][1], /dance/);
  assert.match(messages[2][1], /send "new" first/);
  assert.deepEqual(replies[3], { id: 3, events: [], status: [], unsettled: [], timers: 0 });
});
