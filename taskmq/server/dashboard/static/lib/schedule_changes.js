// @ts-check
/** Changes of a schedule that its page, the list and the page of its workflow offer. */
import { part, send } from "./api.js";
import { plural } from "./format.js";
import { html, useState } from "./html.js";
import { Action, Code, Confirm, Failure, notify, TextField } from "./parts.js";

/** Dialog that starts the occurrences of a past period after a preview.
 * @param {{name: string, where: string, close: () => void}} props where: the schedule's path in the API */
function Backfill({ name, where, close }) {
  const [start, setStart] = useState("");
  const [end, setEnd] = useState("");
  const [preview, setPreview] = useState(/** @type {any} */ (null));
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  const body = (/** @type {boolean} */ dry_run) => ({ start: new Date(start).toISOString(), end: new Date(end).toISOString(), dry_run });
  const look = () => { setError(null); try { send(`${where}/backfill`, body(true)).then(setPreview, setError); } catch { setError(new Error("Fill in both times.")); } };
  const act = async () => {
    if (!preview) throw new Error("Preview the occurrences first.");
    const found = await send(`${where}/backfill`, body(false));
    notify(`${plural(found.instants.length, "occurrence")} started.`);
  };
  return html`<${Confirm} title=${`Backfill ${name}`} verb="Start" close=${close} act=${act}>
    <${TextField} label="From" type="datetime-local" step="1" value=${start} set=${(/** @type {string} */ text) => { setStart(text); setPreview(null); }} />
    <${TextField} label="To" type="datetime-local" step="1" value=${end} set=${(/** @type {string} */ text) => { setEnd(text); setPreview(null); }} />
    <button type="button" onClick=${look}>Preview</button>
    ${error && html`<${Failure} error=${error} />`}
    ${preview && html`<p>${plural(preview.instants.length, "occurrence")}${preview.has_more ? ", and more" : ""}:</p><${Code} label="Occurrences" text=${preview.instants.slice(0, 20).join("\n")} />`}
  <//>`;
}

/** Buttons that pause or resume a schedule, and backfill it.
 * @param {{schedule: any, reload: () => void, noun?: unknown, canBackfill?: boolean}} props noun: what the buttons add to their verbs */
export function ScheduleChanges({ schedule, reload, noun = null, canBackfill = true }) {
  const [open, show] = useState("");
  const where = `schedules/${part(schedule.name)}`;
  const close = () => show("");
  const resume = async () => { await send(`${where}/resume`); notify(`${schedule.name} is resumed.`); reload(); };
  const pause = async (/** @type {string} */ note) => { await send(`${where}/pause`, { note }); notify(`${schedule.name} is paused.`); reload(); };
  return html`${schedule.paused ? html`<${Action} act=${resume} mark="p" title="p">Resume${noun}<//>` : html`<button type="button" data-key="p" title="p" onClick=${() => show("pause")}>Pause${noun}</button>`}
    ${canBackfill && html`<button type="button" onClick=${() => show("backfill")}>Backfill${noun} …</button>`}
    ${open === "pause" && html`<${Confirm} title=${`Pause ${schedule.name}`} verb="Pause" note close=${close} act=${pause}><p>It starts nothing until it is resumed.</p><//>`}
    ${open === "backfill" && html`<${Backfill} name=${schedule.name} where=${where} close=${close} />`}`;
}
