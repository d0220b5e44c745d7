// @ts-check
/** Queues of the broker. */
import { may, part, send } from "../lib/api.js";
import { stateOf } from "../lib/backlog.js";
import { PauseQueue, resumeQueue } from "../lib/changes.js";
import { useData } from "../lib/data.js";
import { FigurePlots, Ranges } from "../lib/figures.js";
import { count, quote } from "../lib/format.js";
import { html, useState } from "../lib/html.js";
import { Action, Code, Confirm, Empty, Facts, Head, notify, QueueWord, Section, Loading, Table, When } from "../lib/parts.js";
import { to } from "../lib/route.js";

// More names push the charts off the screen.
const MOST = 20;

function PauseAction({ name, isPaused, reload }) {
  const [open, show] = useState(false);
  if (!may("queues.operate") || isPaused === null) return null;
  const resume = async () => { await resumeQueue(name); reload(); };
  return html`${isPaused ? html`<${Action} act=${resume} mark="p" title="p">Resume<//>` : html`<button type="button" data-key="p" title="p" onClick=${() => show(true)}>Pause</button>`}
    ${open && html`<${PauseQueue} name=${name} close=${() => show(false)} reload=${reload} />`}`;
}

const Dead = ({ of, count: dead }) => dead && may("dead_letters.read") ? html`<a href=${to(["dead-letters", of])}>${count(dead)}</a>` : count(dead);

/** Return the first names of a list, and the number of the others.
 * @param {string[]} names @param {(name: string) => unknown} show */
const enumerate = (names, show = (name) => name) => names.length > 0 && html`${names.slice(0, MOST).map((name, at) => html`<span key=${name}>${at ? ", " : ""}${show(name)}</span>`)}${names.length > MOST && ` and ${count(names.length - MOST)} more`}`;

function Queue({ name, range }) {
  const loaded = useData(`queues/${part(name)}`, { max_age: 3 }, ["worker", "job"]);
  const [open, show] = useState(false);
  const purge = async () => { const { purged } = await send(`queues/${part(name)}/purge`, { name }); notify(`${count(purged)} messages deleted.`); loaded.reload(); };
  return html`<${Loading} loaded=${loaded} title=${name}>${(/** @type {any} */ queue) => html`
    <${Head} title=${name} sub=${queue.paused ? html`Paused <${When} at=${queue.paused.since} /> ${queue.paused.note}` : ""}>
      <a href=${to("jobs", { filter: `queue:${quote(name)}` })}>Jobs</a>
      <${PauseAction} name=${name} isPaused=${queue.paused !== null} reload=${loaded.reload} />
      ${may("queues.purge") && html`<button type="button" class="danger" onClick=${() => show(true)}>Purge</button>`}<//>
    ${queue.consumers === 0 && html`<div class="reason"><strong>No worker consumes this queue.</strong> Start one: <code>taskmq worker MODULE:APP -Q ${name}</code></div>`}
    <${Section} title="Details"><${Facts} of=${[["Kind", queue.kind], ["In the store", queue.stored === null ? "" : count(queue.stored)], ["Oldest", queue.oldest && html`<${When} at=${queue.oldest} />`], ["Ready", count(queue.ready)], ["Unacknowledged", count(queue.in_hand)], ["Delayed", count(queue.delayed)],
      ["Dead letters", html`<${Dead} of=${name} count=${queue.dead} />`], ["Consumers", count(queue.consumers)], ["Workers", enumerate(queue.workers)],
      ["Tasks", enumerate(queue.tasks, (task) => html`<a href=${to(["tasks", task])}>${task}</a>`)]]} /><//>
    ${may("metrics.read") && html`<${Ranges} chosen=${range} /><div class="two"><${FigurePlots} which=${["jobs", "wait"]} range=${range} queue=${name} /></div>`}
    ${open && html`<${Confirm} title=${`Purge ${name}`} verb="Delete the messages" typed=${name} close=${() => show(false)} act=${purge}><p>The ${count(queue.ready)} waiting messages are deleted permanently.</p><//>`}`}<//>`;
}

function List() {
  const loaded = useData("queues", { max_age: 3 }, ["worker", "job"]);
  return html`<${Head} title="Queues" sub=${loaded.data?.delayed != null ? `${count(loaded.data.delayed)} delayed jobs and retries` : ""} />
    <${Loading} loaded=${loaded}>${(/** @type {any} */ { queues }) => queues.length
      ? html`<${Table} label="Queues" columns=${["Queue", ["In the store", "number"], ["Oldest", "p3"], ["Ready", "number"], ["Unacknowledged", "number"], ["Consumers", "number"], ["Dead letters", "number"], "State", ""]}>${queues.map((/** @type {any} */ one) => { const state = stateOf(one, loaded.at); return html`<tr key=${one.queue} data-row class=${state?.word === "No workers" ? "is-late" : ""}>
          <td title=${one.parts.join(" ")}><a href=${to(["queues", one.queue])}>${one.queue}</a></td><td class="number">${count(one.stored)}</td><td class="p3"><${When} at=${one.oldest} /></td><td class="number">${count(one.ready)}</td><td class="number">${count(one.in_hand)}</td><td class="number">${count(one.consumers)}</td>
          <td class="number"><${Dead} of=${one.queue} count=${one.dead} /></td><td><${QueueWord} state=${state} /></td>
          <td><div class="actions"><${PauseAction} name=${one.queue} isPaused=${one.is_paused} reload=${loaded.reload} /></div></td></tr>`; })}<//>`
      : html`<${Empty} title="No queues yet"><p>Workers create the queues of their tasks when they start:</p><${Code} label="Command" text="taskmq worker MODULE:APP" /><//>`}<//>`;
}

export default function Queues({ rest, query }) {
  return rest.length ? html`<${Queue} name=${rest[0]} range=${query.range ?? "24h"} />` : html`<${List} />`;
}
