// @ts-check
/** A workflow, step by step. */
import { may, part, send } from "../lib/api.js";
import { useData } from "../lib/data.js";
import { html, useState } from "../lib/html.js";
import { Action, Confirm, Empty, Field, Head, notify, Shown, State, Table } from "../lib/parts.js";
import { go, to } from "../lib/route.js";

function Workflow({ id }) {
  const loaded = useData(`workflows/${part(id)}`);
  const [open, show] = useState(false);
  const redrive = async () => { const { steps } = await send(`workflows/${part(id)}/redrive`); notify(`${steps} steps run again.`); loaded.reload(); };
  const cancel = async (/** @type {string} */ reason) => { await send(`workflows/${part(id)}/cancel`, reason ? { reason } : {}); notify("Cancelled."); loaded.reload(); };
  return html`<${Shown} loaded=${loaded} title=${id}>${(/** @type {any} */ flow) => {
    const done = flow.steps.filter((/** @type {any} */ step) => step.state === "succeeded").length;
    return html`<${Head} title=${id} sub=${html`<${State} state=${flow.state} /> ${done} of ${flow.steps.length} steps`}>
        ${may("workflows.operate") && flow.state !== "running" && flow.state !== "succeeded" && html`<${Action} act=${redrive} mark="r">Run again what has failed<//>`}
        ${may("workflows.operate") && flow.state === "running" && html`<button type="button" class="danger" data-key="c" onClick=${() => show(true)}>Cancel</button>`}<//>
      <progress max=${flow.steps.length || 1} value=${done} aria-label="Steps that have succeeded"></progress>
      ${flow.cancelled && html`<p class="reason">Cancelled: ${flow.cancelled}</p>`}
      <${Table} label="Steps" columns=${["Step", "State", "Task", "Attempts", "Error"]}>${flow.steps.map((/** @type {any} */ step) => html`<tr key=${step.step}><td>${step.step}</td><td><${State} state=${step.state} /></td><td>${step.task}</td><td class="number">${step.attempts ?? "–"}</td><td>${step.error}</td></tr>`)}<//>
      ${open && html`<${Confirm} title="Cancel the workflow" verb="Cancel it" note close=${() => show(false)} act=${cancel}><p>What has not started never will; what runs is stopped.</p><//>`}`;
  }}<//>`;
}

function Find() {
  const [id, set] = useState("");
  const submit = (/** @type {Event} */ event) => { event.preventDefault(); if (id.trim()) go(["workflows", id.trim()]); };
  return html`<${Head} title="Workflows" /><form class="card" role="search" onSubmit=${submit}>
      <${Field} label="Id of a workflow" hint="What start() returned, or taskmq workflow list shows."><input data-filter value=${id} onInput=${(/** @type {any} */ e) => set(e.target.value)} /><//>
      <button type="submit" class="primary">Show</button></form>
    <${Empty} title="Workflows are found by their id"><p>A list of them is not in the API yet. <a href=${to("jobs")}>The jobs of their steps</a></p><//>`;
}

export default function Workflows({ rest }) {
  return rest.length ? html`<${Workflow} id=${rest[0]} />` : html`<${Find} />`;
}
