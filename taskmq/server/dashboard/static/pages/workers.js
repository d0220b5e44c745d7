// @ts-check
/** Worker processes by host node, queue or version, with their slots and running jobs. */
import { may, send } from "../lib/api.js";
import { useData } from "../lib/data.js";
import { FigurePlots } from "../lib/figures.js";
import { count, plural, size, span } from "../lib/format.js";
import { Fragment, html, useState } from "../lib/html.js";
import { JobLink } from "../lib/job_link.js";
import { LEVELS } from "../lib/log.js";
import { Action, Code, Confirm, Dialog, Empty, Facts, Field, Head, notify, Section, Select, Loading, State, Table, When } from "../lib/parts.js";
import { to } from "../lib/route.js";

const MOST_SLOTS = 64;
const LONG = 120;

/** @type {Record<string, (worker: any) => string[]>} */
const GROUPS = {
  node: (worker) => [worker.node ?? worker.host],
  queue: (worker) => worker.queues,
  version: (worker) => [worker.app_version || `taskmq ${worker.version}`],
};

function Slots({ worker }) {
  const long = worker.jobs.filter((/** @type {any} */ one) => one.seconds > LONG).length;
  const words = `${worker.running} of ${worker.slots} slots are busy${long ? `, ${long} for over 2 min` : ""}`;
  return html`<div class="slots" role="img" aria-label=${words}>${Array.from({ length: Math.min(worker.slots, MOST_SLOTS) }, (_, at) => { const job = worker.jobs[at]; return html`<i key=${at} class=${at < worker.running ? `is-busy ${job?.seconds > LONG ? "is-long" : ""}` : ""} title=${job && `${job.task}, ${span(job.seconds)}`}></i>`; })}</div>`;
}

const Status = ({ worker: { state, paused } }) => html`<${State} state=${state} kind=${state === "running" ? "succeeded" : "held"} />${paused.length > 0 && html` <span class="dim">paused: ${paused.join(", ")}</span>`}`;

const cpu = (/** @type {any} */ { cpu: cores }) => `${Math.round(100 * cores)} %`;
const sum = (/** @type {any[]} */ workers, /** @type {string} */ name) => workers.reduce((total, one) => total + one[name], 0);
const busy = (/** @type {any[]} */ workers) => `${count(sum(workers, "running"))} of ${plural(sum(workers, "slots"), "slot")} busy`;

/** Send a command to one worker and return its answer; throws if it does not answer, or refuses.
 * @param {string} name @param {Record<string, unknown>} body */
async function control(name, body) {
  const { items: [found] } = await send("workers/control", { workers: [name], ...body });
  if (found?.verdict !== "done") throw new Error(found?.detail || `${name} did not answer.`);
  return found;
}

/** Pauses, resumes or drains a worker. */
function Stop({ worker: { name, state }, reload }) {
  const [open, show] = useState(false);
  const verb = state === "paused" ? "resume" : "pause";
  const flip = async () => { await control(name, { command: verb }); notify(`${name} is ${verb}d.`); reload(); };
  const drain = async () => { await control(name, { command: "drain" }); notify(`${name} is draining.`); reload(); };
  return may("workers.control") && html`<${Action} act=${flip} mark="p" title="p">${verb === "pause" ? "Pause" : "Resume"}<//><button type="button" class="danger" onClick=${() => show(true)}>Drain</button>
    ${open && html`<${Confirm} title=${`Drain ${name}`} verb="Drain" close=${() => show(false)} act=${drain}><p>It accepts no new jobs, finishes the running ones, and exits. It is not replaced. Jobs that run longer than its grace go back to their queue.</p><//>`}`;
}

function Actions({ worker, reload }) {
  const { name, slots } = worker;
  const [open, show] = useState("");
  const [value, set] = useState("");
  const [stacks, setStacks] = useState("");
  if (!may("workers.control")) return null;
  const change = async () => { const { detail } = await control(name, open === "slots" ? { command: "concurrency", number: Number(value) } : { command: "log_level", level: value }); notify(`${name}: ${open} ${detail}`); reload(); };
  return html`<${Action} act=${async () => setStacks((await control(name, { command: "stacks" })).text)}>Stacks<//><button type="button" onClick=${() => { set(slots); show("slots"); }}>Change slots</button><button type="button" onClick=${() => { set("debug"); show("log level"); }}>Change log level</button><${Stop} worker=${worker} reload=${reload} />
    ${open && html`<${Confirm} title=${`Change the ${open} of ${name}`} verb=${`Change ${open}`} close=${() => show("")} act=${change}><${Field} label=${`New ${open}`} hint="Until the process ends.">${open === "slots" ? html`<input type="number" min="1" required value=${value} onInput=${(/** @type {any} */ e) => set(e.target.value)} />` : html`<${Select} of=${LEVELS} value=${value} set=${set} />`}<//><//>`}
    ${stacks && html`<${Dialog} title=${`Stacks of ${name}`} close=${() => setStacks("")}><${Code} label="Stacks" text=${stacks} /><//>`}`;
}

/** The jobs that run on workers, the longest first. */
function Jobs({ of, kind = "" }) {
  const jobs = of.flatMap((/** @type {any} */ worker) => worker.jobs.map((/** @type {any} */ job) => ({ ...job, worker: worker.name }))).sort((/** @type {any} */ a, /** @type {any} */ b) => b.seconds - a.seconds);
  return html`<${Section} title="Running jobs" kind=${kind}><${Table} none="No running jobs." label="Running jobs" columns=${["Job", "Task", "Queue", "Worker", ["Run time", "number"]]}>${jobs.map((/** @type {any} */ job) => html`<tr key=${job.job_id} data-row>
    <td><${JobLink} name=${job.job_id} queue=${job.queue} /></td><td>${job.task}</td><td>${job.queue}</td><td>${job.worker}</td><td class="number">${span(job.seconds)}</td></tr>`)}<//><//>`;
}

function One({ name }) {
  const loaded = useData("workers", { max_age: 3 }, ["worker"]);
  return html`<${Loading} loaded=${loaded} title=${name}>${(/** @type {any} */ { items }) => {
    const worker = items.find((/** @type {any} */ one) => one.name === name);
    return worker ? html`<${Head} of=${loaded} title=${name} sub=${html`<${Status} worker=${worker} /><span>${busy([worker])}</span>`}><${Actions} worker=${worker} reload=${loaded.reload} /><//>
      <${Section} title="Slots"><${Slots} worker=${worker} /><//>
      <${Jobs} of=${[worker]} />
      <${Section} title="Details"><${Facts} of=${[["Queues", worker.queues.join(", ")], ["Backlog", count(worker.backlog)], ["Ended", count(worker.ended)], ["Unsettled", count(worker.unsettled)], ["CPU", cpu(worker)], ["Memory", size(worker.memory)], ["Open files", count(worker.descriptors)], ["Loop lag", span(worker.loop_lag)], ["Node", worker.node], ["Host", worker.host], ["Process", worker.pid], ["App", worker.app], ["App version", worker.app_version], ["taskmq", worker.version], ["Started", html`<${When} at=${worker.started} exact />`]]} /><//>`
      : html`<${Head} title=${name} /><${Empty} title="Worker not found"><p>It has ended, or its event loop is blocked. <a href=${to("workers")}>All workers</a></p><//>`;
  }}<//>`;
}

/** @param {boolean} isStuck whether a worker has jobs that it cannot settle */
const columns = (isStuck) => ["Worker", "State", ["Slots", "p2"], ["Busy", "number p2"], ["Backlog", "number p2"], ...(isStuck ? [["Unsettled", "number p4"]] : []), ["Queues", "p3"], ["CPU", "number p3"], ["Memory", "number p3"], ["App version", "p3"], ["Started", "number p2"], ""];

const Row = ({ worker, isStuck, reload }) => html`<tr data-row><td><a href=${to(["workers", worker.name])}>${worker.name}</a></td><td><${Status} worker=${worker} /></td>
  <td class="p2"><${Slots} worker=${worker} /></td><td class="number p2">${worker.running} of ${worker.slots}</td><td class="number p2">${count(worker.backlog)}</td>${isStuck && html`<td class="number p4">${count(worker.unsettled)}</td>`}
  <td class="p3">${worker.queues.join(", ")}</td><td class="number p3">${cpu(worker)}</td><td class="number p3">${size(worker.memory)}</td><td class="p3">${worker.app_version || "–"}</td><td class="number p2"><${When} at=${worker.started} /></td>
  <td><div class="actions"><${Stop} worker=${worker} reload=${reload} /></div></td></tr>`;

/** Summarize the workers.
 * @param {any[]} workers */
function summary(workers) {
  const versions = new Set(workers.map((one) => `${one.app_version} ${one.version}`)).size;
  return [plural(workers.length, "worker"), busy(workers), ...(versions > 1 ? [`${versions} versions`] : [])].map((one) => html`<span key=${one}>${one}</span>`);
}

function List({ by }) {
  const loaded = useData("workers", { max_age: 3 }, ["worker"]);
  return html`<${Head} of=${loaded} title="Workers" sub=${loaded.data && summary(loaded.data.items)} />
    <${Loading} loaded=${loaded}>${(/** @type {any} */ { items }) => {
      const isStuck = sum(items, "unsettled") > 0;
      const names = [...new Set(/** @type {string[]} */ (items.flatMap(GROUPS[by])))].sort();
      return items.length
        ? html`<div class="chips" role="group" aria-label="Groups">${Object.keys(GROUPS).map((one) => html`<a key=${one} href=${to("workers", { by: one })} aria-current=${one === by ? "true" : undefined}>By ${one}</a>`)}</div>
          <${Table} label="Workers" columns=${columns(isStuck)}>${names.map((name) => { const own = items.filter((/** @type {any} */ one) => GROUPS[by](one).includes(name)); return html`<${Fragment} key=${name}><tr class="group"><td colspan=${columns(isStuck).length}><strong>${name}</strong> <span class="dim">${plural(own.length, "worker")}, ${busy(own)}, ${cpu({ cpu: sum(own, "cpu") })} CPU</span></td></tr>
            ${own.map((/** @type {any} */ worker) => html`<${Row} key=${worker.name} worker=${worker} isStuck=${isStuck} reload=${loaded.reload} />`)}<//>`; })}<//>
          <div class="six"><${Jobs} of=${items} kind="is-wide" />${may("metrics.read") && html`<${FigurePlots} which=${["hand"]} range="24h" />`}</div>`
        : html`<${Empty} title="No workers"><${Code} label="Command" text="taskmq worker MODULE:APP" />
          <p>A running worker is missing here if it uses another broker or vhost, lacks access to the control exchange, or its event loop is blocked. <code>taskmq doctor</code> finds the cause.</p><//>`;
    }}<//>`;
}

export default function Workers({ rest, query }) {
  return rest.length ? html`<${One} name=${rest[0]} />` : html`<${List} by=${Object.hasOwn(GROUPS, query.by ?? "") ? query.by : "node"} />`;
}
