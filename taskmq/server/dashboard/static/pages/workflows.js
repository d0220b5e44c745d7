// @ts-check
/** Workflows, each with its graph and steps. */
import { may, part, send, session } from "../lib/api.js";
import { useData } from "../lib/data.js";
import { count } from "../lib/format.js";
import { Graph } from "../lib/graph.js";
import { html, useEffect, useState } from "../lib/html.js";
import { Action, Code, Confirm, Empty, Field, Head, Id, markOf, notify, Loading, State, Table, When } from "../lib/parts.js";
import { change, go, to } from "../lib/route.js";

// Larger graphs are unreadable.
const MOST_BOXES = 300;
const STATES = ["all", "running", "succeeded", "failed", "cancelled"];

/** Summarise the calls of a step by state.
 * @param {any[]} parts */
const words = (parts) => [...new Set(parts.map((one) => one.state))].map((state) => `${parts.filter((one) => one.state === state).length} ${state.replace("_", " ")}`).join(", ");

/** @param {{steps: any[]}} props */
function Steps({ steps }) {
  /** @type {Map<string, any[]>} */
  const parts = new Map();
  for (const step of steps) if (step.part_of !== null) parts.set(step.part_of, [...(parts.get(step.part_of) ?? []), step]);
  const whole = steps.filter((step) => step.part_of === null);
  const boxes = whole.map((step) => ({ id: step.step, after: step.after, label: `${step.step}${parts.has(step.step) ? ` ×${parts.get(step.step)?.length}` : ""}`, mark: markOf(step.state), kind: step.state }));
  return html`${boxes.length > MOST_BOXES ? html`<p class="dim">${count(boxes.length)} steps are too many for a graph.</p>` : boxes.length > 1 && html`<${Graph} boxes=${boxes} label="Graph" />`}
    <${Table} label="Steps" columns=${["Step", "State", "After", "Task", ["Attempts", "number"], "Error"]}>${steps.map((step) => html`<tr key=${step.step}><td class=${step.part_of === null ? "" : "part"}>${step.step}${parts.has(step.step) && html`<br /><span class="dim">${words(parts.get(step.step) ?? [])}</span>`}</td>
      <td><${State} state=${step.state} /></td><td>${step.part_of === null ? step.after.join(", ") || "–" : ""}</td><td>${step.task && html`<a href=${to(["tasks", step.task])}>${step.task}</a>`}</td><td class="number">${step.attempts ?? "–"}</td><td>${step.error}</td></tr>`)}<//>`;
}

function Workflow({ id }) {
  const loaded = useData(`flows/${part(id)}`);
  const [open, show] = useState(false);
  const redrive = async () => { const { steps } = await send(`flows/${part(id)}/redrive`); notify(`${steps} steps run again.`); loaded.reload(); };
  const cancel = async (/** @type {string} */ reason) => { await send(`flows/${part(id)}/cancel`, reason ? { reason } : {}); notify("Cancelled."); loaded.reload(); };
  return html`<${Loading} loaded=${loaded} title=${id}>${(/** @type {any} */ flow) => {
    const done = flow.steps.filter((/** @type {any} */ step) => step.state === "succeeded").length;
    return html`<${Head} title=${id} sub=${html`<${State} state=${flow.state} /> ${done} of ${flow.steps.length} steps`}>
        ${may("workflows.operate") && flow.state !== "running" && flow.state !== "succeeded" && html`<${Action} act=${redrive} mark="r">Redrive<//>`}
        ${may("workflows.operate") && flow.state === "running" && html`<button type="button" class="danger" data-key="c" onClick=${() => show(true)}>Cancel</button>`}<//>
      <progress max=${flow.steps.length || 1} value=${done} aria-label="Succeeded steps"></progress>
      ${flow.cancelled && html`<p class="reason">Cancelled: ${flow.cancelled}</p>`}
      <${Steps} steps=${flow.steps} />
      ${open && html`<${Confirm} title="Cancel the workflow" verb="Cancel workflow" note close=${() => show(false)} act=${cancel}><p>Steps that have not started never will. Running steps are stopped.</p><//>`}`;
  }}<//>`;
}

function Find() {
  const [id, set] = useState("");
  const submit = (/** @type {Event} */ event) => { event.preventDefault(); if (id.trim()) go(["workflows", id.trim()]); };
  return html`<details><summary>Find by id</summary><form class="bar" role="search" aria-label="Find by id" onSubmit=${submit}>
    <${Field} label="Workflow id"><input value=${id} onInput=${(/** @type {any} */ e) => set(e.target.value)} /><//><button type="submit">Show</button></form></details>`;
}

function Name({ name }) {
  const [text, set] = useState(name);
  useEffect(() => set(name), [name]);
  const submit = (/** @type {Event} */ event) => { event.preventDefault(); change({ name: text.trim(), cursor: "" }); };
  return html`<div class="bar"><form role="search" aria-label="Filter by name" onSubmit=${submit}><label class="sr" for="name">Name</label>
    <input id="name" data-filter value=${text} placeholder="shop.*" spellcheck=${false} autoComplete="off" onInput=${(/** @type {any} */ e) => set(e.target.value)} /><button type="submit">Filter</button></form></div>`;
}

function List({ query }) {
  const { name = "", states = "", cursor = "" } = query;
  const loaded = useData("flows", { name, states, limit: 50, ...(cursor ? { cursor } : {}) }, ["job"], 5000);
  const hasTenant = session.caller?.memberships.some((one) => one.tenant === "*") || (session.caller?.memberships.length ?? 0) > 1;
  const here = { name, states };
  return html`<${Head} title="Workflows" /><${Name} name=${name} />
    <div class="chips" role="group" aria-label="States">${STATES.map((word) => { const meant = word === "all" ? "" : word; return html`<a key=${word} href=${to("workflows", { name, states: meant })} aria-current=${states === meant ? "true" : undefined}>${word}</a>`; })}</div>
    <${Loading} loaded=${loaded}>${(/** @type {any} */ page) => html`
      ${page.items.length
        ? html`<${Table} label="Workflows" columns=${["Workflow", "State", "Progress", ...(hasTenant ? ["Tenant"] : []), "Sent", "Cancelled because"]}>${page.items.map((/** @type {any} */ flow) => html`<tr key=${flow.workflow_id} data-row>
            <td><a href=${to(["workflows", flow.workflow_id])}>${flow.name || html`<${Id} id=${flow.workflow_id} />`}</a><br /><span class="dim"><${Id} id=${flow.workflow_id} /></span></td><td><${State} state=${flow.state} /></td>
            <td><progress max=${flow.nodes || 1} value=${flow.nodes - flow.unfinished} aria-label=${`Ended nodes of ${flow.workflow_id}`}></progress> ${count(flow.nodes - flow.unfinished)} of ${count(flow.nodes)}</td>
            ${hasTenant && html`<td>${flow.tenant || "–"}</td>`}<td><${When} at=${flow.started} /></td><td>${flow.cancelled}</td></tr>`)}<//>`
        : name || states || cursor ? html`<${Empty} title="No matching workflows"><p><a href=${to("workflows")}>All workflows</a></p><//>`
        : html`<${Empty} title="No workflows"><p>A workflow sends several steps, each after its predecessors:</p><${Code} label="Example" text="chain(photos.s('summer'), resize.s().each(), total.s()).send()" /><//>`}
      ${page.is_bounded && html`<p class="dim">The search stopped before the page was full; the next page continues from there.</p>`}
      <div class="bar">${cursor && html`<a href=${to("workflows", here)}>First page</a>`}${page.next && html`<a href=${to("workflows", { ...here, cursor: page.next })}>Next page</a>`}</div>`}<//>
    <${Find} />`;
}

export default function Workflows({ rest, query }) {
  return rest.length ? html`<${Workflow} id=${rest[0]} />` : html`<${List} query=${query} />`;
}
