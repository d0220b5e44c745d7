// @ts-check
/** Worker processes and their running jobs. */
import { useData } from "../lib/data.js";
import { count, size, span } from "../lib/format.js";
import { html } from "../lib/html.js";
import { JobLink } from "../lib/job_link.js";
import { Code, Empty, Facts, Head, Section, Loading, Table, When } from "../lib/parts.js";

const Slots = ({ worker }) => html`<div class="slots" role="img" aria-label=${`${worker.running} of ${worker.slots} slots are busy`}>
  ${Array.from({ length: Math.min(worker.slots, 200) }, (_, at) => html`<i key=${at} class=${at < worker.running ? "is-busy" : ""}></i>`)}</div>`;

const One = ({ worker }) => html`<${Section} title=${worker.name} actions=${html`<span class="state">${worker.state}</span>`}>
  <${Slots} worker=${worker} />
  <${Facts} of=${[["Busy", `${worker.running} of ${worker.slots}`], ["Backlog", count(worker.backlog)],
    ["Unsettled", worker.unsettled > 0 ? count(worker.unsettled) : ""], ["Queues", worker.queues.join(", ")], ["Paused", worker.paused.join(", ")],
    ["Host", worker.host], ["Process", worker.pid], ["Memory", size(worker.memory)], ["Version", worker.version], ["Started", html`<${When} at=${worker.started} />`]]} />
  ${worker.jobs.length > 0 && html`<${Table} label=${`Jobs running on ${worker.name}`} columns=${["Job", "Task", "Queue", ["Run time", "number"]]}>${worker.jobs.map((/** @type {any} */ job) => html`<tr key=${job.job_id} data-row>
    <td><${JobLink} name=${job.job_id} queue=${job.queue} /></td><td>${job.task}</td><td>${job.queue}</td><td class="number">${span(job.seconds)}</td></tr>`)}<//>`}<//>`;

export default function Workers() {
  const loaded = useData("workers", { max_age: 3 }, ["worker"]);
  return html`<${Head} title="Workers" sub=${loaded.data ? `${loaded.data.items.length} ${loaded.data.items.length === 1 ? "worker" : "workers"}` : ""} />
    <${Loading} loaded=${loaded}>${(/** @type {any} */ { items }) => items.length
      ? html`<div class="two">${items.map((/** @type {any} */ worker) => html`<${One} key=${worker.name} worker=${worker} />`)}</div>`
      : html`<${Empty} title="No workers"><${Code} label="Command" text="taskmq worker MODULE:APP" />
          <p>A running worker is missing here if it uses another broker or vhost, lacks access to the control exchange, or its event loop is blocked. <code>taskmq doctor</code> finds the cause.</p><//>`}<//>`;
}
