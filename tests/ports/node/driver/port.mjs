import { readFileSync } from 'node:fs';

import { InvalidTypeError, InvalidValueError } from '../lib/index.mjs';
import { World } from './world.mjs';

const { name, version } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'));

const HELLO = {
  protocol: 1,
  port: { name, version, language: 'JavaScript', runtime: `node ${process.versions.node}` },
  features: [
    'cancel',
    'timeout',
    'touch',
    'resume',
    'max_queued',
    'default_limit',
    'set_cooldown',
    'try_acquire',
    'stall',
    'timers',
    'inspect',
    'hooks',
    'wall_clock',
    'nesting',
  ],
};

/** Answers the messages of protocol 1, one after another. Also what runs the scenario files in our own suite. */
export class Port {
  /** @type {World | null} */
  #world = null;

  /**
   * @param {any} message
   * @returns {Promise<object>} The reply without its id.
   */
  async answer(message) {
    switch (message.cmd) {
      case 'hello':
        return HELLO;
      case 'new':
        try {
          this.#world = new World(message.config);
        } catch (error) {
          if (!(error instanceof InvalidTypeError || error instanceof InvalidValueError)) throw error;
          return { error: { kind: 'invalid', message: error.message } };
        }
        break;
      case 'do':
        await this.#existingWorld().do(message.ops);
        break;
      case 'advance':
        await this.#existingWorld().advance(message.ms);
        break;
      case 'stall':
        await this.#existingWorld().stall(message.ms);
        break;
      default:
        throw new Error(`unknown command ${JSON.stringify(message.cmd)}`);
    }
    return this.#existingWorld().reply();
  }

  #existingWorld() {
    if (this.#world === null) throw new Error('there is no manager: send "new" first');
    return this.#world;
  }
}
