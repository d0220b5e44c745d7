// @ts-check
/** A table of runs. */
import { session } from "./api.js";
import { ran, span } from "./format.js";
import { html } from "./html.js";
import { Id, Segments, State, Table, When } from "./parts.js";
import { to } from "./route.js";

/** The state of a run; a running one may be held. */
export const RunState = ({ run }) => html`<${State} state=${run.held !== null && run.state === "running" ? "held" : run.state} />`;

/** The steps of a run as a bar. */
export const StepBar = ({ run }) => html`<${Segments} of=${[["ended", run.steps - run.unfinished - run.failures, "good"], ["failed", run.failures, "bad"], ["not ended", run.unfinished, "rest"]]} />`;

/** @param {{runs: any[], isOfOne?: boolean}} props isOfOne: whether all are runs of one workflow, so that its name is left out */
export function RunTable({ runs, isOfOne = false }) {
  const hasTenant = session.caller?.memberships.some((one) => one.tenant === "*") || (session.caller?.memberships.length ?? 0) > 1;
  return html`<${Table} label="Runs" columns=${["Run", "State", ...(isOfOne ? [] : ["Workflow"]), ["Steps", "p2"], ...(hasTenant ? [["Tenant", "p3"]] : []), "Started", ["Ran", "number"], "Reason or error"]}>${runs.map((run) => html`<tr key=${run.run_id} data-row>
    <td><a href=${to(["runs", run.run_id])} aria-label=${`Run ${run.run_id}`}><${Id} id=${run.run_id} /></a></td><td><${RunState} run=${run} /></td>${!isOfOne && html`<td>${run.workflow && html`<a href=${to(["workflows", run.workflow])}>${run.workflow}</a>`}</td>`}
    <td class="bars p2"><${StepBar} run=${run} /></td>
    ${hasTenant && html`<td class="p3">${run.tenant || "–"}</td>`}<td><${When} at=${run.started} /></td>
    <td class="number">${span(ran(run))}</td><td class="wide">${run.cancelled ?? run.held ?? (run.error && html`<span class="c-bad">${run.error}</span>`)}</td></tr>`)}<//>`;
}
