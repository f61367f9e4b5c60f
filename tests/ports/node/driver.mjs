// Port protocol 1 over stdin and stdout: one JSON object a line, one reply a line.

import { Port } from './driver/port.mjs';

const port = new Port();
let isOver = false;

// Not node:readline, which also breaks lines at U+2028, and JSON may hold that unescaped.
process.stdin.setEncoding('utf8'); // a chunk may end in the middle of a character
let rest = '';
for await (const chunk of process.stdin) {
  const lines = (rest + chunk).split('\n');
  rest = /** @type {string} */ (lines.pop());
  let replies = '';
  for (const line of lines) replies += await replyTo(line);
  // Before more is awaited, since more may come only after these; and together, since a write costs more than a reply.
  process.stdout.write(replies);
  if (isOver) break;
}

/** @param {string} line */
async function replyTo(line) {
  let id = null;
  try {
    const message = JSON.parse(line);
    id = message.id;
    isOver = message.cmd === 'bye';
    return isOver ? '' : toLine({ id, ...(await port.answer(message)) });
  } catch (error) {
    // No message of the protocol, or a slip of ours: an error tells more than a crash, and costs no restart.
    return toLine({ id, error: { message: error instanceof Error ? String(error.stack) : String(error) } });
  }
}

/** @param {object} reply */
function toLine(reply) {
  return `${JSON.stringify(reply)}\n`;
}
