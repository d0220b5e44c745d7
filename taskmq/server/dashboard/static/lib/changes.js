// @ts-check
/** Changes of queues and runs that the palette offers, too. */
import { part, send } from "./api.js";
import { html } from "./html.js";
import { Confirm, notify } from "./parts.js";

/** Resume a queue.
 * @param {string} name */
export async function resumeQueue(name) {
  await send(`queues/${part(name)}/resume`);
  notify(`${name} is resumed.`);
}

/** Dialog that pauses a queue.
 * @param {{name: string, close: () => void, reload: () => void}} props */
export function PauseQueue({ name, close, reload }) {
  const pause = async (/** @type {string} */ note) => { await send(`queues/${part(name)}/pause`, { note }); notify(`${name} is paused.`); reload(); };
  return html`<${Confirm} title=${`Pause ${name}`} verb="Pause" note close=${close} act=${pause}><p>Workers start no jobs of this queue until it is resumed. Running jobs continue.</p><//>`;
}

/** Dialog that holds a run.
 * @param {{run: any, close: () => void, reload: () => void}} props */
export function HoldRun({ run, close, reload }) {
  const hold = async (/** @type {string} */ reason) => { await send(`runs/${part(run.run_id)}/hold`, reason ? { reason } : {}); notify("Held."); reload(); };
  return html`<${Confirm} title=${`Hold ${run.workflow || run.run_id}`} verb="Hold run" note close=${close} act=${hold}><p>Running jobs end. No step starts until the run is released.</p><//>`;
}
