// @ts-check
/** Runs of workflows that match a filter. */
import { may, session } from "../lib/api.js";
import { useData } from "../lib/data.js";
import { Chips, Filter, withoutLast } from "../lib/filter.js";
import { between, span } from "../lib/format.js";
import { html } from "../lib/html.js";
import { Code, Empty, Head, Id, Loading, Segments, State, Table, When, Pager } from "../lib/parts.js";
import { to } from "../lib/route.js";

const CHIPS = [["all", ""], ["running", "running"], ["queued", "queued"], ["held", "held"], ["succeeded", "succeeded"], ["failed", "failed"], ["cancelled", "cancelled"]];
const EXAMPLE = "chain(photos.s('summer'), resize.s().each(), total.s()).send()";

function Row({ run, hasTenant }) {
  return html`<tr data-row>
    <td><a href=${to(["runs", run.run_id])} aria-label=${`Run ${run.run_id}`}><${Id} id=${run.run_id} /></a></td><td><${State} state=${run.held !== null && run.state === "running" ? "held" : run.state} /></td><td>${run.workflow && html`<a href=${to(["workflows", run.workflow])}>${run.workflow}</a>`}</td>
    <td class="bars p2"><${Segments} of=${[["ended", run.steps - run.unfinished - run.failures, "good"], ["failed", run.failures, "bad"], ["not ended", run.unfinished, "rest"]]} /></td>
    ${hasTenant && html`<td class="p3">${run.tenant || "–"}</td>`}<td><${When} at=${run.started} /></td>
    <td class="number">${span(between(run.started, run.ended ?? new Date().toISOString()))}</td><td class="wide">${run.cancelled ?? run.held ?? html`<span class="c-bad">${run.error}</span>`}</td></tr>`;
}

export default function Runs({ query }) {
  const { filter = "", cursor = "" } = query;
  const loaded = useData("runs", { filter, cursor, limit: 50 }, ["job"], 5000);
  const hasTenant = session.caller?.memberships.some((one) => one.tenant === "*") || (session.caller?.memberships.length ?? 0) > 1;
  const columns = ["Run", "State", "Workflow", ["Steps", "p2"], ...(hasTenant ? [["Tenant", "p3"]] : []), "Started", ["Ran", "number"], "Reason or error"];
  return html`<${Head} of=${loaded} title="Runs">${may("jobs.submit") && may("definitions.read") && html`<a href=${to("workflows")}>Start a run</a>`}<//>
    <${Filter} page="runs" filter=${filter} placeholder="workflow:nightly* status:failed started:>-24h" />
    <${Chips} page="runs" filter=${filter} of=${CHIPS} />
    <${Loading} loaded=${loaded}>${(/** @type {any} */ page) => html`
      ${page.items.length
        ? html`<${Table} label="Runs" columns=${columns}>${page.items.map((/** @type {any} */ run) => html`<${Row} key=${run.run_id} run=${run} hasTenant=${hasTenant} />`)}<//>`
        : filter || cursor ? html`<${Empty} title="No matching runs"><p><a href=${to("runs", { filter: withoutLast(filter) })}>Remove the last term</a> · <a href=${to("runs")}>All runs</a></p><//>`
        : html`<${Empty} title="No runs"><p>A run executes the steps of a workflow, each after its predecessors:</p><${Code} label="Example" text=${EXAMPLE} /><//>`}
      ${page.is_bounded && html`<p class="dim">The search stopped before the page was full; the next page continues from there.</p>`}
      <${Pager} next=${page.next} />`}<//>`;
}
