// @ts-check
/** A single job: state, history and actions. */
import { address, ApiError, call, may, part, send } from "../lib/api.js";
import { useData, useEvery } from "../lib/data.js";
import { LiveLog } from "../lib/follow.js";
import { between, failure, instant, pretty, span, waited } from "../lib/format.js";
import { html, useEffect, useState } from "../lib/html.js";
import { LEVELS, Lines } from "../lib/log.js";
import { Action, Code, Confirm, Empty, Facts, Field, Head, TaskProgress, notify, Section, Select, Loading, State, Table, TextField, When } from "../lib/parts.js";
import { Reasons } from "../lib/reasons.js";
import { change, go, to } from "../lib/route.js";
import { ENDED, rowsOf, Timeline } from "../lib/timeline.js";


/** Return what an attempt's run used, as far as it is known.
 * @param {any} attempt */
const used = ({ processor_seconds, peak_memory }) => [
  processor_seconds === null ? "" : `, processor ${span(processor_seconds)}`, peak_memory === null ? "" : `, peak memory ${Math.round(peak_memory / 2 ** 20)} MiB`].join("");

/** Parse JSON from the user; throws an error with a readable message.
 * @param {string} text @param {string} what */
function parseJson(text, what) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new ApiError({ status: 0, code: "json", detail: `${what}: invalid JSON: ${/** @type {Error} */ (error).message}` });
  }
}

/** Use editable arguments. If one kind was edited, both are sent, because the API replaces all.
 * @param {any} job */
function useArguments(job) {
  // The values when the form was opened.
  const [before] = useState({ payload: job.payload ? pretty(job.payload) : "", args: job.args ? pretty(job.args) : "" });
  const [now, set] = useState(before);
  const type = (/** @type {string} */ name) => (/** @type {any} */ e) => set({ ...now, [name]: e.target.value });
  const hint = job.payload ? "" : "Large arguments, stored separately. Leave empty to keep them.";
  return {
    edited: () => (now.payload === before.payload && now.args === before.args ? {} : {
      payload: parseJson(now.payload || "{}", "Keyword arguments"), args: parseJson(now.args || "[]", "Positional arguments"),
    }),
    fields: html`<${Field} label="Keyword arguments" hint=${hint}><textarea value=${now.payload} spellcheck=${false} onInput=${type("payload")} /><//>
      <${Field} label="Positional arguments" hint=${hint}><textarea class="short" value=${now.args} spellcheck=${false} onInput=${type("args")} /><//>`,
  };
}

/** Fields for the time and priority of a job.
 * @param {{when: string, setWhen: (text: string) => void, priority: string, setPriority: (text: string) => void, hint: string}} props */
const TimeFields = ({ when, setWhen, priority, setPriority, hint }) => html`
  <${TextField} label="Run at, in this browser's time zone" hint=${hint} type="datetime-local" step="1" value=${when} set=${setWhen} />
  <${TextField} label="Priority, 0 to 9" type="number" min="0" max="9" value=${priority} set=${setPriority} />`;

function Clone({ job, close }) {
  const { fields, edited } = useArguments(job);
  const [when, setWhen] = useState("");
  const [priority, setPriority] = useState(String(job.priority));
  const run = async () => {
    const made = await send(`jobs/${part(job.id)}/clone`, {
      ...edited(), ...(when ? { schedule_time: new Date(when).toISOString() } : {}), ...(Number(priority) === job.priority ? {} : { priority: Number(priority) }),
    });
    notify("Submitted as a new job.");
    go(["jobs", made.id]);
  };
  return html`<${Confirm} title="Clone" close=${close} act=${run} verb="Clone">
    <p>Task <code>${job.task}</code>. This job does not change; the new one is linked to it.</p>
    ${fields}<${TimeFields} when=${when} setWhen=${setWhen} priority=${priority} setPriority=${setPriority} hint="Leave empty to run now." /><//>`;
}

function Change({ job, close, done }) {
  const [version] = useState(job.version);
  const { fields, edited } = useArguments(job);
  const [when, setWhen] = useState("");
  const [delay, setDelay] = useState("");
  const [priority, setPriority] = useState(String(job.priority));
  const act = async (/** @type {string} */ note) => {
    const body = /** @type {Record<string, unknown>} */ ({ note, ...edited() });
    if (when) body.schedule_time = new Date(when).toISOString();
    if (delay) body.delay = delay;
    if (Number(priority) !== job.priority) body.priority = Number(priority);
    await call("PATCH", `jobs/${part(job.id)}`, { body, headers: { "If-Match": `"${version}"` } });
    notify("Changed.");
    done();
  };
  return html`<${Confirm} title="Change" close=${close} act=${act} verb="Change" note>
    <${TimeFields} when=${when} setWhen=${setWhen} priority=${priority} setPriority=${setPriority} hint=${`Now: ${instant(job.due_at)}`} />
    <${TextField} label="Or run in" hint="Such as 10m or 2h; 0s for now." value=${delay} set=${setDelay} />
    ${fields}<//>`;
}

/** Dialog that gives a recorded sent job another time. */
function Reschedule({ job, close, done }) {
  const [version] = useState(job.version);
  const [when, setWhen] = useState("");
  const act = async (/** @type {string} */ note) => {
    const body = { note, schedule_time: new Date(when || Date.now()).toISOString() };
    await call("PATCH", `jobs/${part(job.id)}`, { body, headers: { "If-Match": `"${version}"` } });
    notify("Rescheduled.");
    done();
  };
  return html`<${Confirm} title="Reschedule" close=${close} act=${act} verb="Reschedule" note>
    <${TextField} label="Run at, in this browser's time zone" hint="Leave empty to run now." type="datetime-local" step="1" value=${when} set=${setWhen} /><//>`;
}

/** Reasons why a sent job that has not ended cannot be cancelled or rescheduled. */
const Refused = ({ job }) => [["cancel", "cancelled"], ["change", "rescheduled"]].filter(([verb]) => job.refusals?.[verb]).map(([verb, what]) =>
  html`<p key=${verb} class="dim">Cannot be ${what}: ${job.refusals[verb]}</p>`);

function Actions({ job, reload }) {
  const [open, show] = useState("");
  const where = `jobs/${part(job.id)}`;
  const ended = ENDED.has(job.state);
  const runs = job.state === "running";
  const isSent = job.via === "broker";
  const can = (/** @type {string} */ verb) => !job.refusals?.[verb];
  const close = () => show("");
  const retry = async () => {
    const made = await send(`${where}/retry`, { again: Boolean(job.retried_as) });
    const waits = made.reattached ? ` Dependents that wait for it: ${made.reattached}.` : "";
    notify((made.id === job.id ? "Running now." : "Retried as a new job.") + waits);
    if (made.id === job.id) reload(); else go(["jobs", made.id]);
  };
  const act = async (/** @type {string} */ verb, /** @type {string} */ note) => { await send(`${where}/${verb}`, { note }); notify(verb === "hold" ? "Held." : "Released."); reload(); };
  const cancel = async (/** @type {string} */ note) => {
    const after = await call("DELETE", where, { query: { note } });
    notify(after.status === "cancelled" ? "Cancelled." : "The worker was asked to stop it.");
    reload();
  };
  return html`
    ${may("jobs.change") && html`
      ${!runs && can("retry") && html`<${Action} act=${retry} mark="r" kind=${ended && !job.retried_as ? "primary" : ""} title="r">${job.retried_as ? "Retry again" : ended ? "Retry" : "Run now"}<//>`}
      ${job.state === "held" && html`<${Action} act=${() => act("release", "")} mark="h" title="h">Release<//>`}
      ${!ended && !runs && job.state !== "held" && can("hold") && html`<button type="button" data-key="h" title="h" onClick=${() => show("hold")}>Hold …</button>`}
      ${!ended && !runs && can("change") && html`<button type="button" onClick=${() => show("change")}>${isSent ? "Reschedule" : "Change"} …</button>`}
      ${!ended && can("cancel") && html`<button type="button" class="danger" data-key="c" title="c" onClick=${() => show("cancel")}>Cancel …</button>`}`}
    ${may("jobs.submit") && can("clone") && html`<button type="button" onClick=${() => show("clone")}>Clone …</button>`}
    ${open === "hold" && html`<${Confirm} title="Hold" verb="Hold" note close=${close} act=${(/** @type {string} */ note) => act("hold", note)}><p>The job does not run until it is released.</p><//>`}
    ${open === "cancel" && html`<${Confirm} title="Cancel" verb="Cancel the job" note close=${close} act=${cancel}><p>${runs ? "The job is running; its worker is asked to stop it." : "The job will not run."}</p><//>`}
    ${open === "change" && html`<${isSent ? Reschedule : Change} job=${job} close=${close} done=${reload} />`}
    ${open === "clone" && html`<${Clone} job=${job} close=${close} />`}`;
}

/** The job's log from the beginning, page by page. */
function Pages({ job, level, from }) {
  const loaded = useData(`jobs/${part(job.id)}/logs`, { level, cursor: from, limit: 200 });
  return html`<${Loading} loaded=${loaded}>${(/** @type {any} */ { items, next }) => html`
    ${items.length ? html`<${Lines} lines=${items} />` : html`<p class="dim">No ${from ? "more " : ""}lines.</p>`}
    <div class="bar">${from && !ENDED.has(job.state) && html`<a href=${to(["jobs", job.id], { level })}>Follow</a>`}
      ${from && from !== "0" && html`<a href=${to(["jobs", job.id], { level, from: "0" })}>From the beginning</a>`}
      ${items.length >= 200 && next && html`<a href=${to(["jobs", job.id], { level, from: next })}>Later lines</a>`}</div>`}<//>`;
}

/** The log, followed live if the job had not ended when the page was opened. */
function Log({ job, level, from }) {
  const [isLive] = useState(!ENDED.has(job.state));
  const actions = html`<div class="actions"><label class="inline"><span class="sr">Minimum level</span><${Select} of=${LEVELS} value=${level} set=${(/** @type {string} */ chosen) => change({ level: chosen, from: "" })} /></label>
    <a href=${address(`jobs/${part(job.id)}/logs/text`, { level })} download>Download</a></div>`;
  return html`<${Section} title="Log" actions=${actions}>${isLive && !from
    ? html`<${LiveLog} key=${level} id=${job.id} level=${level} runs=${job.state === "running"} hasStarted=${Boolean(job.start_time)} isOver=${ENDED.has(job.state)} />`
    : html`<${Pages} job=${job} level=${level} from=${from} />`}<//>`;
}

/** The job's own options, as rows of facts.
 * @param {any} options
 * @returns {[string, any][]} */
function ownOptions({ timeout, max_attempts, retry = {}, guarantee, resources = {}, place = {}, preemptible }) {
  const pairs = (/** @type {Record<string, unknown>} */ of) => Object.entries(of).map(([name, value]) => `${name}: ${value}`).join(", ");
  const pace = [retry.backoff, retry.base !== undefined && `from ${span(retry.base)}`, retry.cap !== undefined && `up to ${span(retry.cap)}`, retry.jitter !== undefined && (retry.jitter ? "with jitter" : "without jitter")];
  return [
    ["Timeout", timeout && span(timeout)], ["Attempts at most", max_attempts], ["Retries", pace.filter(Boolean).join(", ")],
    ["Guarantee", guarantee === "at_most_once" ? "at most once" : ""], ["Resources", pairs(resources)], ["Node", pairs(place.labels ?? {})],
    ["Preferred node", place.prefers && `${pairs(place.prefers)}, for ${span(place.patience)}`], ["Gang", place.gang && `${place.gang[0]}, ${place.gang[1]} jobs`],
    ["Preemptible", preemptible === undefined ? "" : preemptible ? "yes" : "no"],
  ];
}

function Details({ job, loaded, level, from }) {
  const { reload } = loaded;
  const attempts = useData(`jobs/${part(job.id)}/attempts`);
  const history = useData(`jobs/${part(job.id)}/history`);
  useEffect(() => { attempts.refresh(); history.refresh(); }, [job.version]);
  const now = Date.now();
  // Progress reports are not events.
  useEvery(job.progress && !ENDED.has(job.state) ? 3000 : 0, loaded.refresh);
  return html`<${Head} of=${loaded} title=${job.task} id=${job.job_id} sub=${html`<${State} state=${job.state} /><span>Attempt ${job.attempt}</span><span>Submitted <${When} at=${job.submitted_at} /></span><a href=${to(["queues", job.queue])}>${job.queue}</a>${job.tenant && html`<span>${job.tenant}</span>`}`}><${Actions} job=${job} reload=${reload} /><//>
    ${!ENDED.has(job.state) && html`<${Refused} job=${job} />`}
    ${!ENDED.has(job.state) && html`<${Reasons} id=${job.id} runs=${job.state === "running"} />`}
    ${job.cancel_requested !== null && !ENDED.has(job.state) && html`<p class="reason">Cancellation requested: ${job.cancel_requested || "no reason given"}</p>`}
    <div class="two">
      <div>
        <${Section} title="Timeline" actions=${job.first_start_time && html`<span class="dim">waited ${span(waited(job))}${job.start_time && `, ran ${span(between(job.start_time, job.end_time ?? new Date().toISOString()))}`}</span>`}><${Loading} loaded=${attempts}>${(/** @type {any} */ { items }) => html`<${Timeline} now=${now} rows=${job.submitted_at ? rowsOf(job, items, history.data?.items ?? [], now) : []} />
          ${items.map((/** @type {any} */ one) => html`<details key=${`${one.attempt} ${one.started}`}><summary>Attempt ${one.attempt} at ${one.worker || "a worker"}${one.app_version && `, version ${one.app_version}`}: ${one.error ? failure(one.error) : one.state}${used(one)}</summary>${one.error?.traceback && html`<${Code} label=${`Traceback of attempt ${one.attempt}`} text=${one.error.traceback} />`}</details>`)}
          ${!items.length && !job.first_start_time && html`<p class="dim">Not started yet.</p>`}`}<//><//>
        ${job.error && html`<${Section} title="Error" actions=${html`<a href=${to("failures", { task: job.task, time: "all" })}>Failures of the task</a>`}><p class="c-bad"><strong>${failure(job.error)}</strong></p>${job.error.traceback ? html`<${Code} label="Traceback" text=${job.error.traceback} />` : null}<//>`}
        ${may("logs.read") && html`<${Log} job=${job} level=${level} from=${from} />`}
        <${Section} title="Events"><${Loading} loaded=${history}>${(/** @type {any} */ { items }) => html`<${Table} none="No events." label="Events" columns=${["When", "Event", "By", "Note"]}>${items.map((/** @type {any} */ one) => html`<tr key=${`${one.version} ${one.kind}`}><td><${When} at=${one.at} /></td><td>${one.kind}</td><td>${one.by}</td><td>${one.note}</td></tr>`)}<//>`}<//><//>
      </div>
      <div>
        <${Section} title="Details"><${Facts} of=${[
          ["Task", html`<a href=${to(["tasks", job.task])}>${job.task}</a>`], ["Queue", html`<a href=${to(["queues", job.queue])}>${job.queue}</a>`],
          ["Sent to", job.via === "broker" ? "the broker" : ""], ["Tenant", job.tenant], ["Priority", job.priority], ["Attempt", job.attempt], ["Worker", job.worker], ["Owner", job.owner], ["Description", job.description],
          ["Progress", job.progress && html`<${TaskProgress} ...${job.progress} /> ${job.progress.note}`],
          ["Submitted", html`<${When} at=${job.submitted_at} exact />`], ["Due", html`<${When} at=${job.due_at} exact />`],
          ["First due", job.schedule_time !== job.due_at ? html`<${When} at=${job.schedule_time} exact />` : ""],
          ["Started", job.start_time && html`<${When} at=${job.start_time} exact />`], ["Ended", job.end_time && html`<${When} at=${job.end_time} exact />`],
          ["Waited", job.first_start_time && span(waited(job))], ["Ran", job.start_time && span(between(job.start_time, job.end_time ?? new Date().toISOString()))],
          ["Expires", job.expires_at && html`<${When} at=${job.expires_at} exact />`],
          ["Retry of", job.retry_of && html`<a href=${to(["jobs", job.retry_of])}>${job.retry_of}</a>`],
          ["Retried as", job.retried_as && html`<a href=${to(["jobs", job.retried_as])}>${job.retried_as}</a>`],
          ["Labels", Object.entries(job.labels).map(([name, value]) => `${name}: ${value}`).join(", ")], ...ownOptions(job.options ?? {}), ["Id", job.id], ["Version", job.version],
        ]} /><//>
        ${job.depends_on?.length > 0 && html`<${Section} title="Depends on"><${Table} label="Jobs it depends on" columns=${["Job", "Condition"]}>${job.depends_on.map((/** @type {any} */ one) => html`<tr key=${one.id} data-row><td><a href=${to(["jobs", one.id])}>${one.id}</a></td><td>${one.condition}</td></tr>`)}<//><//>`}
        <${Section} title="Arguments">${job.payload === null && job.args === null ? html`<p class="dim">${job.via === "broker" ? "Arguments of sent jobs are not recorded." : "Large arguments, stored separately."}</p>`
          : html`${Object.keys(job.payload ?? {}).length > 0 && html`<${Code} label="Keyword arguments" text=${pretty(job.payload)} />`}${(job.args ?? []).length > 0 && html`<${Code} label="Positional arguments" text=${pretty(job.args)} />`}
            ${!Object.keys(job.payload ?? {}).length && !(job.args ?? []).length && html`<p class="dim">None.</p>`}`}<//>
        ${job.state === "succeeded" && html`<${Section} title="Result">${job.result_problem
          ? html`<p class="reason">The result is unavailable: ${job.result_problem.detail}</p>`
          : html`<${Code} label="Result" text=${pretty(job.result)} />`}<//>`}
      </div>
    </div>`;
}

export default function Job({ rest, query }) {
  const [id] = rest;
  const loaded = useData(`jobs/${part(id)}`, { expand: "payload,result,progress,options" }, ["job"], 1000);
  if (loaded.error instanceof ApiError && loaded.error.status === 404) {
    return html`<${Head} title=${id} /><${Empty} title="Job not found"><p>It was never submitted, its retention has expired, or it belongs to another tenant.</p><p><a href=${to("jobs")}>All jobs</a></p><//>`;
  }
  return html`<${Loading} loaded=${loaded} title=${id}>${(/** @type {any} */ job) => html`<${Details} job=${job} loaded=${loaded} level=${query.level ?? "debug"} from=${query.from ?? ""} />`}<//>`;
}
