// @ts-check
/** Worker processes and their running jobs. */
import { useData } from "../lib/data.js";
import { count, plural, size, span } from "../lib/format.js";
import { html } from "../lib/html.js";
import { JobLink } from "../lib/job_link.js";
import { Icon } from "../lib/icons.js";
import { Code, Empty, Head, Section, Loading, Table, When } from "../lib/parts.js";

const MOST_SLOTS = 64;

const Slots = ({ worker }) => html`<div class="slots" role="img" aria-label=${`${worker.running} of ${worker.slots} slots are busy`}>
  ${Array.from({ length: Math.min(worker.slots, MOST_SLOTS) }, (_, at) => html`<i key=${at} class=${at < worker.running ? "is-busy" : ""}></i>`)}</div>`;

const Status = ({ of }) => html`<span class=${`state s-${of === "running" ? "succeeded" : "held"}`}><${Icon} name=${of === "running" ? "succeeded" : "held"} /><span class="word">${of}</span></span>`;

const One = ({ worker }) => html`<tr data-row><td>${worker.name}</td><td><${Status} of=${worker.state} />${worker.paused.length > 0 && html` <span class="dim">paused: ${worker.paused.join(", ")}</span>`}</td>
  <td class="p2"><${Slots} worker=${worker} /></td><td class="number">${worker.running} of ${worker.slots}</td><td class="number p2">${count(worker.backlog)}</td><td class="number p4">${count(worker.unsettled)}</td>
  <td class="p3">${worker.queues.join(", ")}</td><td class="p4">${worker.host}, ${worker.pid}</td><td class="number p3">${size(worker.memory)}</td><td class="p3">${worker.app_version || "–"}</td><td class="p4">${worker.version}</td><td class="number p2"><${When} at=${worker.started} /></td></tr>`;

const COLUMNS = ["Worker", "State", ["Slots", "p2"], ["Busy", "number"], ["Backlog", "number p2"], ["Unsettled", "number p4"], ["Queues", "p3"], ["Host, process", "p4"], ["Memory", "number p3"], ["App version", "p3"], ["taskmq", "p4"], ["Started", "number p2"]];

/** Summarize the workers.
 * @param {any[]} workers */
function summary(workers) {
  const sum = (/** @type {string} */ name) => workers.reduce((total, one) => total + one[name], 0);
  const versions = new Set(workers.map((one) => `${one.app_version} ${one.version}`)).size;
  return [plural(workers.length, "worker"), `${count(sum("running"))} of ${plural(sum("slots"), "slot")} busy`, ...(versions > 1 ? [`${versions} versions`] : [])].map((one) => html`<span key=${one}>${one}</span>`);
}

export default function Workers() {
  const loaded = useData("workers", { max_age: 3 }, ["worker"]);
  return html`<${Head} of=${loaded} title="Workers" sub=${loaded.data && summary(loaded.data.items)} />
    <${Loading} loaded=${loaded}>${(/** @type {any} */ { items }) => {
      const jobs = items.flatMap((/** @type {any} */ worker) => worker.jobs.map((/** @type {any} */ job) => ({ ...job, worker: worker.name }))).sort((/** @type {any} */ a, /** @type {any} */ b) => b.seconds - a.seconds);
      return items.length
        ? html`<${Table} label="Workers" columns=${COLUMNS}>${items.map((/** @type {any} */ worker) => html`<${One} key=${worker.name} worker=${worker} />`)}<//>
          <${Section} title="Running jobs">${jobs.length ? html`<${Table} label="Running jobs" columns=${["Job", "Task", "Queue", "Worker", ["Run time", "number"]]}>${jobs.map((/** @type {any} */ job) => html`<tr key=${job.job_id} data-row>
            <td><${JobLink} name=${job.job_id} queue=${job.queue} /></td><td>${job.task}</td><td>${job.queue}</td><td>${job.worker}</td><td class="number">${span(job.seconds)}</td></tr>`)}<//>` : html`<p class="dim">No running jobs.</p>`}<//>`
        : html`<${Empty} title="No workers"><${Code} label="Command" text="taskmq worker MODULE:APP" />
          <p>A running worker is missing here if it uses another broker or vhost, lacks access to the control exchange, or its event loop is blocked. <code>taskmq doctor</code> finds the cause.</p><//>`;
    }}<//>`;
}
