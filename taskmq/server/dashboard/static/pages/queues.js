// @ts-check
/** Queues of the broker. */
import { may, part, send } from "../lib/api.js";
import { backlogOf, emptyIn, isWork, placesOf, rate, stateOf, useDepths, useWaits, waitOf } from "../lib/backlog.js";
import { PauseQueue, resumeQueue } from "../lib/changes.js";
import { useData } from "../lib/data.js";
import { FigurePlots, Ranges } from "../lib/figures.js";
import { count, countText, plural, quote, span } from "../lib/format.js";
import { html, useState } from "../lib/html.js";
import { Icon } from "../lib/icons.js";
import { Plot } from "../lib/plot.js";
import { Action, Code, Confirm, Empty, Facts, Head, notify, QueueWord, Section, Segments, Spark, Loading, Table, Tile, When } from "../lib/parts.js";
import { to } from "../lib/route.js";

// More names push the charts off the screen.
const MOST = 20;
const MOST_STRIPS = 8;

function PauseAction({ name, isPaused, reload }) {
  const [open, show] = useState(false);
  if (!may("queues.operate") || isPaused === null) return null;
  const resume = async () => { await resumeQueue(name); reload(); };
  return html`${isPaused ? html`<${Action} act=${resume} mark="p" title="p">Resume<//>` : html`<button type="button" data-key="p" title="p" onClick=${() => show(true)}>Pause</button>`}
    ${open && html`<${PauseQueue} name=${name} close=${() => show(false)} reload=${reload} />`}`;
}

const Dead = ({ of, count: dead }) => dead && may("dead_letters.read") ? html`<a href=${to(["dead-letters", of])}>${count(dead)}</a>` : count(dead);

/** Say which queues grow, and what helps. @param {{of: any[]}} props */
const Advice = ({ of }) => of.filter((one) => one.advice).map((one) => html`<div class="reason" key=${one.queue}><strong>${one.queue} ${one.advice}.</strong></div>`);

/** Say how many more workers keep up, or empty a queue within an hour. @param {{of: any}} props */
const Help = ({ of }) => of.more_workers.length > 0 && html`<section class="card brief"><div class="section-head"><h2>What would help</h2></div><ul>${of.more_workers.map((/** @type {any} */ one, /** @type {number} */ at) => {
    const effects = [...(at === 0 && of.entered > of.left ? ["Keeps up"] : []), ...(one.empty_in === null ? [] : [`Empty in ${span(one.empty_in)}`])];
    return html`<li key=${one.workers}><${Icon} name="workers" /><strong>${at ? "Or add" : "Add"} ${plural(one.workers, "worker")}</strong><span class="dim">${effects.join(". ")}</span></li>`;
  })}</ul></section>`;

/** Return the first names of a list, and the number of the others.
 * @param {string[]} names @param {(name: string) => unknown} show @param {{count: number, is_exact: boolean}} all how many names there are */
const enumerate = (names, show = (name) => name, all = { count: names.length, is_exact: true }) => names.length === 0 ? "" : html`${names.slice(0, MOST).map((name, at) => html`<span key=${name}>${at ? ", " : ""}${show(name)}</span>`)}${all.count > MOST && ` and ${countText({ ...all, count: all.count - MOST })} more`}`;

/** Return the number of a queue's jobs in the store. @param {any} queue */
const storedOf = ({ stored, is_exact }) => countText({ count: stored, is_exact });

/** Return the tenants with ready jobs of a queue, with links to these. @param {any} queue */
function tenantsOf({ queue, by_tenant, tenants, is_exact }) {
  const jobs = new Map(by_tenant.map((/** @type {any} */ one) => [one.name, one.jobs]));
  return enumerate([...jobs.keys()], (name) => html`${name ? html`<a href=${to("jobs", { filter: `queue:${quote(queue)} status:queued`, tenant: name })}>${name}</a>` : "without a tenant"}: ${countText({ count: jobs.get(name), is_exact })}`, { count: tenants, is_exact });
}

function Queue({ name, range }) {
  const loaded = useData(`queues/${part(name)}`, { max_age: 3 }, ["worker", "job"]);
  const [open, show] = useState(false);
  const purge = async () => { const { purged } = await send(`queues/${part(name)}/purge`, { name }); notify(`${count(purged)} messages deleted.`); loaded.reload(); };
  return html`<${Loading} loaded=${loaded} title=${name}>${(/** @type {any} */ queue) => html`
    <${Head} of=${loaded} title=${name} sub=${html`<${QueueWord} state=${stateOf({ ...queue, is_paused: queue.paused !== null })} />${queue.paused && html`<span>Paused <${When} at=${queue.paused.since} /> ${queue.paused.note}</span>`}`}>
      <a href=${to("jobs", { filter: `queue:${quote(name)}` })}>Jobs</a>
      <${PauseAction} name=${name} isPaused=${queue.paused !== null} reload=${loaded.reload} />
      ${may("queues.purge") && html`<button type="button" class="danger" onClick=${() => show(true)}>Purge</button>`}<//>
    ${queue.consumers === 0 && html`<div class="reason"><strong>No worker consumes this queue.</strong> Start one: <code>taskmq worker MODULE:APP -Q ${name}</code></div>`}
    ${!queue.more_workers.length && html`<${Advice} of=${[queue]} />`}
    <div class="tiles"><${Tile} label="Store" value=${storedOf(queue)} /><${Tile} label="Broker" value=${count(queue.ready)} /><${Tile} label="With workers" value=${count(queue.in_hand)} /><${Tile} label="Oldest" value=${waitOf(queue, loaded.at)} />
      <${Tile} label="In/s" value=${rate(queue.entered)} note=${queue.left === null ? "" : `out ${rate(queue.left)}`} /><${Tile} label="Empty in" value=${emptyIn(queue)} />
      <${Tile} label="Delayed" value=${count(queue.delayed)} /><${Tile} label="Dead letters" value=${count(queue.dead)} href=${queue.dead && may("dead_letters.read") ? to(["dead-letters", name]) : undefined} kind=${queue.dead ? "bad" : ""} /><${Tile} label="Consumers" value=${count(queue.consumers)} kind=${queue.consumers ? "" : "bad"} /></div>
    <${Help} of=${queue} />
    ${may("metrics.read") && html`<${Ranges} chosen=${range} /><div class="two"><${FigurePlots} which=${["depth", "jobs", "wait", "run"]} range=${range} queue=${name} /></div>`}
    <${Section} title="Details"><${Facts} of=${[["Tenants", tenantsOf(queue)], ["Priorities", enumerate(queue.by_priority.map((/** @type {any} */ one) => `${one.name}: ${countText({ count: one.jobs, is_exact: queue.is_exact })}`))], ["Workers", enumerate(queue.workers)], ["Tasks", enumerate(queue.tasks, (task) => html`<a href=${to(["tasks", task])}>${task}</a>`)], ["RabbitMQ", enumerate(queue.parts.map((/** @type {any} */ one) => one.queue))], ["Kind", queue.kind]]} /><//>
    ${open && html`<${Confirm} title=${`Purge ${name}`} verb="Delete the messages" typed=${name} close=${() => show(false)} act=${purge}><p>The ${count(queue.ready)} waiting messages are deleted permanently.</p><//>`}`}<//>`;
}

/** Summarize the queues.
 * @param {any} data @returns {string[]} */
function facts({ queues, delayed }) {
  const waiting = queues.reduce((/** @type {number} */ sum, /** @type {any} */ one) => sum + backlogOf(one), 0);
  return [plural(queues.filter(isWork).length, "queue"), `${countText({ count: waiting, is_exact: queues.every((/** @type {any} */ one) => one.is_exact) })} ${waiting === 1 ? "job" : "jobs"} waiting`, ...(delayed === null ? [] : [`${count(delayed)} delayed`])];
}

/** How long jobs waited in the queues with the longest waits. */
function Waits() {
  const lines = useWaits().slice(0, MOST_STRIPS);
  return lines.length > 0 && html`<section class="card"><${Plot} isHeat title="Wait before the start" unit=${`p95 of half an hour, in the ${plural(lines.length, "queue")} with the longest waits`} lines=${lines} show=${span} /></section>`;
}

function List() {
  const loaded = useData("queues", { max_age: 3 }, ["worker", "job"]);
  const depths = useDepths();
  return html`<${Head} of=${loaded} title="Queues" sub=${loaded.data ? facts(loaded.data).map((one) => html`<span key=${one}>${one}</span>`) : ""} />
    <${Loading} loaded=${loaded}>${(/** @type {any} */ { queues }) => queues.some(isWork)
      ? html`<${Advice} of=${queues} /><${Table} label="Queues" columns=${["Queue", "State", ["Where jobs are", "p3"], ["Store", "number"], ["Broker", "number"], ["With workers", "number"], ["In/s", "number p3"], ["Out/s", "number p3"], ["Oldest", "number p3"], ["Empty in", "number p4"], ["Depth, 24 h", "p4"], ["Dead letters", "number p2"], ""]}>${queues.filter(isWork).map((/** @type {any} */ one) => { const state = stateOf(one); return html`<tr key=${one.queue} data-row class=${state?.word === "No workers" ? "is-late" : ""}>
          <td title=${one.parts.join(" ")}>${one.queue.startsWith("taskmq.") ? one.queue : html`<a href=${to(["queues", one.queue])}>${one.queue}</a>`}</td><td><${QueueWord} state=${state} /></td><td class="bars p3"><${Segments} of=${placesOf(one)} /></td><td class="number">${storedOf(one)}</td><td class="number">${count(one.ready)}</td><td class="number">${count(one.in_hand)}</td><td class="number p3">${rate(one.entered)}</td><td class="number p3">${rate(one.left)}</td><td class="number p3">${waitOf(one, loaded.at)}</td><td class="number p4">${emptyIn(one)}</td><td class="p4"><${Spark} of=${depths.get(one.queue) ?? []} label=${`Depth of ${one.queue} in 24 h`} /></td>
          <td class="number p2"><${Dead} of=${one.queue} count=${one.dead} /></td>
          <td><div class="actions"><${PauseAction} name=${one.queue} isPaused=${one.is_paused} reload=${loaded.reload} /></div></td></tr>`; })}<//><${Waits} />`
      : html`<${Empty} title="No queues yet"><p>Workers create the queues of their tasks when they start:</p><${Code} label="Command" text="taskmq worker MODULE:APP" /><//>`}<//>`;
}

export default function Queues({ rest, query }) {
  return rest.length ? html`<${Queue} name=${rest[0]} range=${query.range ?? "24h"} />` : html`<${List} />`;
}
