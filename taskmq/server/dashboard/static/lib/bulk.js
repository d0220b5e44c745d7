// @ts-check
/** Applies an action to many jobs, after a preview. */
import { call, part, read, send } from "./api.js";
import { count, instant } from "./format.js";
import { html, useEffect, useMemo, useState } from "./html.js";
import { CopyCurl } from "./curl.js";
import { Dialog, Failure, Field, Select, Table, TextField } from "./parts.js";
import { to } from "./route.js";

const ACTIONS = [["retry", "Retry, or run now"], ["cancel", "Cancel"], ["hold", "Hold"], ["release", "Release"], ["change", "Change"]];
const EXAMPLES = 5;

/** Build the changes for the API.
 * @param {{when: string, delay: string, priority: string}} fields @returns {Record<string, unknown>} */
const changesOf = ({ when, delay, priority }) => ({
  ...(when ? { schedule_time: new Date(when).toISOString() } : {}),
  ...(delay.trim() ? { delay: delay.trim() } : {}),
  ...(priority ? { priority: Number(priority) } : {}),
});

/** Preview of the changes to the newest matching jobs.
 * @param {{jobs: any[], changes: any, matched: number}} props */
function Preview({ jobs, changes, matched }) {
  const due = changes.schedule_time ? instant(changes.schedule_time) : changes.delay ? `in ${changes.delay}` : "";
  const showChange = (/** @type {unknown} */ before, /** @type {unknown} */ after) => (after === undefined || after === "" ? before : html`${before} → <strong>${after}</strong>`);
  return html`<div role="status">${matched === 0 ? html`<p>No jobs match, so none would change.</p>` : html`<p>Would change ${jobs.length < matched ? `the newest ${jobs.length} of ${count(matched)}` : `all ${count(matched)}`}:</p>
    <${Table} label="Preview" columns=${["Job", "Due", "Priority"]}>${jobs.map((job) => html`<tr key=${job.id}><td>${job.job_id}</td><td>${showChange(instant(job.due_at), due)}</td><td>${showChange(job.priority, changes.priority)}</td></tr>`)}<//>
    <p class="dim">Running and ended jobs do not change.</p>`}</div>`;
}

/** @param {{filter: string, close: () => void, what: string, reload: () => void}} props */
export function Bulk({ filter, close, what, reload }) {
  const [action, choose] = useState("retry");
  const [fields, setFields] = useState({ when: "", delay: "", priority: "" });
  const [rate, setRate] = useState("");
  const [note, setNote] = useState("");
  const [matched, setMatched] = useState(/** @type {number | null} */ (null));
  const [preview, setPreview] = useState(/** @type {{of: string, jobs: any[]} | null} */ (null));
  const [typed, type] = useState("");
  const [progress, setProgress] = useState(/** @type {any} */ (null));
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  const control = useMemo(() => ({ isStopped: false, isGone: false }), []);
  const said = filter ? { filter } : { everything: true };
  const isChange = action === "change";
  const changes = isChange ? changesOf(fields) : {};
  const isPreviewed = preview?.of === JSON.stringify(changes);
  useEffect(() => { send("bulk", { action, ...said, dry_run: true }).then((found) => setMatched(found.matched), setError); return () => { control.isGone = true; }; }, []);
  const look = async () => {
    setError(null);
    try {
      const [found, jobs] = await Promise.all([send("bulk", { action, ...said, ...changes, dry_run: true }), read("jobs", { filter, limit: EXAMPLES })]);
      setMatched(found.matched);
      setPreview({ of: JSON.stringify(changes), jobs });
    } catch (failure) {
      setError(/** @type {Error} */ (failure));
    }
  };
  const start = () => send("bulk/operations", { action, ...said, ...changes, note, ...(rate ? { rate: Number(rate) } : {}) });
  const run = async (/** @type {Event} */ event) => {
    event.preventDefault();
    if (isChange && !isPreviewed) return void look();
    setError(null);
    try {
      let now = /** @type {any} */ (await start());
      const path = `bulk/operations/${part(now.bulk_id)}`;
      for (;;) {
        setProgress({ ...now, refusals: now.refusals.slice(0, 20), isOver: now.state !== "running" });
        if (now.state !== "running") break;
        if (control.isGone) return;
        await new Promise((go) => setTimeout(go, 300));
        now = /** @type {any} */ (await (control.isStopped ? call("DELETE", path) : read(path)));
      }
    } catch (failure) {
      setError(/** @type {Error} */ (failure));
      setProgress((/** @type {any} */ before) => before && { ...before, isOver: true });
    }
    reload();
  };
  const isSure = matched !== null && typed === String(matched);
  const put = (/** @type {string} */ name) => (/** @type {string} */ text) => setFields({ ...fields, [name]: text });
  return html`<${Dialog} title="Bulk operation" close=${close}><form onSubmit=${run}>
    <p>Jobs matching <code>${what || filter || "no filter (all jobs)"}</code>: <strong data-matched>${matched === null ? "…" : count(matched)}</strong></p>
    <${Field} label="Action"><${Select} of=${ACTIONS} value=${action} disabled=${progress !== null} set=${choose} /><//>
    ${isChange && progress === null && html`
      <${TextField} label="Run at, in this browser's time zone" hint="Leave empty to keep." type="datetime-local" step="1" value=${fields.when} set=${put("when")} />
      <${TextField} label="Or run in" hint="Such as 10m or 2h; 0s for now." value=${fields.delay} set=${put("delay")} />
      <${TextField} label="Priority, 0 to 9" hint="Leave empty to keep." type="number" min="0" max="9" value=${fields.priority} set=${put("priority")} />`}
    ${progress === null && html`<${TextField} label="Maximum jobs per second" hint="Leave empty for no limit." type="number" min="0.01" step="any" value=${rate} set=${setRate} />`}
    <${TextField} label="Note for the histories and the audit log" value=${note} maxLength="500" set=${setNote} />
    ${isChange && isPreviewed && preview && progress === null && html`<${Preview} jobs=${preview.jobs} changes=${changes} matched=${matched ?? 0} />`}
    ${progress === null && (!isChange || isPreviewed) && html`<${TextField} label=${`Type ${matched ?? "…"}, the number of jobs, to confirm`} value=${typed} inputMode="numeric" autoComplete="off" data-typed set=${type} />`}
    ${progress && html`<div role="status"><progress max=${matched ?? 1} value=${progress.done + progress.refused} aria-label="Progress"></progress>
      <p data-done>${count(progress.done)} done, ${count(progress.refused)} not changed${progress.isOver ? "." : " …"}</p><p><a href=${to(["bulk", progress.bulk_id])}>Open its page</a>; it continues if you close this dialog.</p></div>
      ${progress.refusals.map((/** @type {any} */ one) => html`<p key=${one.job_id} class="dim">${one.job_id}: ${one.detail}</p>`)}`}
    ${error && html`<${Failure} error=${error} />`}
    <div class="dialog-foot">${progress === null && html`<${CopyCurl} act=${start} /><span class="grow"></span>`}
      ${progress && !progress.isOver && html`<button type="button" onClick=${() => { control.isStopped = true; }}>Stop</button>`}
      <button type="button" onClick=${close}>${progress ? "Close" : "Keep"}</button>
      ${progress === null && (isChange && !isPreviewed ? html`<button type="submit" class="primary" disabled=${!Object.keys(changes).length}>Preview</button>`
        : html`<button type="submit" class="primary" disabled=${!isSure}>Start</button>`)}
    </div>
  </form><//>`;
}
