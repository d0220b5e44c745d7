// @ts-check
/** Bulk operations, running and ended. */
import { ApiError, call, may, part } from "../lib/api.js";
import { useData } from "../lib/data.js";
import { between, count, span } from "../lib/format.js";
import { html, useEffect, useState } from "../lib/html.js";
import { Confirm, Empty, Facts, Head, notify, Section, State, Loading, Table, When, Pager } from "../lib/parts.js";
import { to } from "../lib/route.js";

const KINDS = /** @type {any} */ ({ __proto__: null, done: "succeeded", aborted: "cancelled" });
const WORDS = /** @type {any} */ ({ __proto__: null, retry: "Retry", cancel: "Cancel", hold: "Hold", release: "Release", change: "Change" });
const AGAIN = 1000;

/** Progress relative to the number of jobs at the start. */
const Progress = ({ of, label }) => html`<progress max=${Math.max(of.matched, of.done + of.refused) || 1} value=${of.state === "done" ? Math.max(of.matched, of.done + of.refused) || 1 : of.done + of.refused} aria-label=${label}></progress>
  ${count(of.done)} done${of.refused > 0 ? `, ${count(of.refused)} not changed` : ""}, of ${count(of.matched)}`;

function One({ id }) {
  const loaded = useData(`bulk/operations/${part(id)}`, {}, [], AGAIN);
  const [open, show] = useState(false);
  const isRunning = loaded.data?.state === "running";
  useEffect(() => {
    const timer = isRunning ? window.setTimeout(() => { if (!document.hidden) loaded.reload(); }, AGAIN) : 0;
    return () => clearTimeout(timer);
  }, [isRunning, loaded.at]);
  if (loaded.error instanceof ApiError && loaded.error.status === 404) {
    return html`<${Head} title=${id} /><${Empty} title="Bulk operation not found"><p>Bulk operations are kept for a month after they end. <a href=${to("bulk")}>All bulk operations</a></p><//>`;
  }
  const abort = async () => { await call("DELETE", `bulk/operations/${part(id)}`); notify("Stopped."); loaded.reload(); };
  return html`<${Loading} loaded=${loaded} title=${id}>${(/** @type {any} */ one) => html`
    <${Head} of=${loaded} title=${WORDS[one.action] ?? one.action} sub=${html`<${State} state=${one.state} kind=${KINDS[one.state]} />`}>
      <a href=${to("bulk")}>All bulk operations</a> <a href=${to("jobs", { filter: one.filter })}>Matching jobs</a>
      ${isRunning && may("jobs.bulk") && html`<button type="button" class="danger" data-key="c" title="c" onClick=${() => show(true)}>Abort</button>`}<//>
    <p data-done><${Progress} of=${one} label="Progress" /></p>
    <${Section} title="Details"><${Facts} of=${[["Filter", one.filter || "all jobs"], ["Tenant", one.tenant === null ? "all" : one.tenant || "jobs without a tenant"], ["Rate", one.rate && `${one.rate} per second`],
      ["To run at", one.schedule_time && html`<${When} at=${one.schedule_time} exact />`], ["Priority", one.priority], ["By", one.by], ["Note", one.note], ["Started", html`<${When} at=${one.began} exact />`],
      ["Took", one.ended && span(between(one.began, one.ended))], ["Id", one.bulk_id]]} /><//>
    ${one.refusals.length > 0 && html`<${Section} title="Not changed"><${Table} label="Jobs not changed" columns=${["Job", "Reason"]}>${one.refusals.map((/** @type {any} */ refusal, /** @type {number} */ at) => html`<tr key=${at} data-row>
      <td><a href=${to("jobs", { filter: `id:"${refusal.job_id.replace(/["\\]/g, (/** @type {string} */ found) => `\\${found}`)}"` })}>${refusal.job_id}</a></td><td class="wide">${refusal.detail}</td></tr>`)}<//>
      ${one.refused > one.refusals.length && html`<p class="dim">Only the first hundred are recorded.</p>`}<//>`}
    ${one.repeated.length > 0 && html`<${Section} title="Retried as new jobs"><${Table} label="Jobs retried as new jobs" columns=${["Job", "Retried as"]}>${one.repeated.map((/** @type {any} */ each) => html`<tr key=${each.retried_as} data-row><td>${each.job_id}</td><td><a href=${to(["jobs", each.retried_as])}>${each.retried_as}</a></td></tr>`)}<//>
      ${one.done > one.repeated.length && html`<p class="dim">Only the first hundred are listed; each job's page links to its retry.</p>`}<//>`}
    ${open && html`<${Confirm} title="Abort" verb="Abort" close=${() => show(false)} act=${abort}><p>No more jobs are changed. Changes so far stay.</p><//>`}`}<//>`;
}

function List({ cursor }) {
  const loaded = useData("bulk/operations", { limit: 50, ...(cursor ? { cursor } : {}) }, ["job"], 5000);
  return html`<${Head} of=${loaded} title="Bulk operations" sub="Actions on many jobs. Start one from the Jobs page."><a href=${to("jobs")}>Jobs</a><//>
    <${Loading} loaded=${loaded}>${(/** @type {any} */ { items, next }) => html`${items.length
      ? html`<${Table} label="Bulk operations" columns=${["Action", "State", "Progress", "Filter", "By", "Started", "Note"]}>${items.map((/** @type {any} */ one) => html`<tr key=${one.bulk_id} data-row>
          <td><a href=${to(["bulk", one.bulk_id])}>${WORDS[one.action] ?? one.action}<span class="sr"> ${one.filter}</span></a></td><td><${State} state=${one.state} kind=${KINDS[one.state]} /></td>
          <td class="wide"><${Progress} of=${one} label=${`Progress of ${one.bulk_id}`} /></td><td><code>${one.filter || "all jobs"}</code></td><td>${one.by}</td><td><${When} at=${one.began} /></td><td>${one.note || "–"}</td></tr>`)}<//>`
      : html`<${Empty} title="No bulk operations yet"><p>Filter <a href=${to("jobs")}>jobs</a>, then choose <em>Select all</em>.</p><//>`}
      <${Pager} next=${next} />`}<//>`;
}

export default function Bulk({ rest, query }) {
  return rest.length ? html`<${One} id=${rest[0]} />` : html`<${List} cursor=${query.cursor ?? ""} />`;
}
