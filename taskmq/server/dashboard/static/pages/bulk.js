// @ts-check
/** What is done, or was done, to many jobs at once. */
import { ApiError, call, may, part } from "../lib/api.js";
import { useData } from "../lib/data.js";
import { between, count, span } from "../lib/format.js";
import { html, useEffect, useState } from "../lib/html.js";
import { Confirm, Empty, Facts, Head, notify, Section, Shown, Table, When } from "../lib/parts.js";
import { to } from "../lib/route.js";

const KINDS = /** @type {any} */ ({ __proto__: null, running: ["s-running", "▶"], done: ["s-succeeded", "✓"], aborted: ["s-cancelled", "⊘"] });
const WORDS = /** @type {any} */ ({ __proto__: null, retry: "Run again", cancel: "Cancel", hold: "Hold", release: "Release", change: "Change" });
const AGAIN = 1000;

const Status = ({ state }) => html`<span class=${`state ${KINDS[state]?.[0] ?? ""}`}><span aria-hidden="true">${KINDS[state]?.[1] ?? "•"}</span> ${state}</span>`;

/** How many of those that there were at the beginning. */
const Progress = ({ of, label }) => html`<progress max=${Math.max(of.matched, of.done + of.refused) || 1} value=${of.state === "done" ? Math.max(of.matched, of.done + of.refused) || 1 : of.done + of.refused} aria-label=${label}></progress>
  ${count(of.done)} done${of.refused > 0 ? `, ${count(of.refused)} stayed` : ""}, of ${count(of.matched)}`;

function One({ id }) {
  const loaded = useData(`bulk/operations/${part(id)}`, {}, [], AGAIN);
  const [open, show] = useState(false);
  const isRunning = loaded.data?.state === "running";
  useEffect(() => {
    const timer = isRunning ? window.setTimeout(() => { if (!document.hidden) loaded.reload(); }, AGAIN) : 0;
    return () => clearTimeout(timer);
  }, [isRunning, loaded.at]);
  if (loaded.error instanceof ApiError && loaded.error.status === 404) {
    return html`<${Head} title=${id} /><${Empty} title="There is no such bulk operation here"><p>They are kept for a month after their end. <a href=${to("bulk")}>All of them</a></p><//>`;
  }
  const abort = async () => { await call("DELETE", `bulk/operations/${part(id)}`); notify("It is done to no more jobs."); loaded.reload(); };
  return html`<${Shown} loaded=${loaded} title=${id}>${(/** @type {any} */ one) => html`
    <${Head} title=${WORDS[one.action] ?? one.action} sub=${html`<${Status} state=${one.state} />`}>
      <a href=${to("bulk")}>All bulk operations</a> <a href=${to("jobs", { filter: one.filter })}>Jobs that fit now</a>
      ${isRunning && may("jobs.bulk") && html`<button type="button" class="danger" data-key="c" title="c" onClick=${() => show(true)}>Abort</button>`}<//>
    <p data-done><${Progress} of=${one} label="Progress" /></p>
    <${Section} title="What was asked for"><${Facts} of=${[["Filter", one.filter || "all jobs"], ["Tenant", one.tenant === null ? "all" : one.tenant || "those without one"], ["Rate", one.rate && `${one.rate} a second`],
      ["To run at", one.schedule_time && html`<${When} at=${one.schedule_time} exact />`], ["Priority", one.priority], ["By", one.by], ["Note", one.note], ["Began", html`<${When} at=${one.began} exact />`],
      ["Took", one.ended && span(between(one.began, one.ended))], ["Id", one.bulk_id]]} /><//>
    ${one.refusals.length > 0 && html`<${Section} title="Stayed as they were"><${Table} label="Jobs that stayed as they were" columns=${["Job", "Why"]}>${one.refusals.map((/** @type {any} */ refusal, /** @type {number} */ at) => html`<tr key=${at} data-row>
      <td><a href=${to("jobs", { filter: `id:"${refusal.job_id.replace(/["\\]/g, (/** @type {string} */ found) => `\\${found}`)}"` })}>${refusal.job_id}</a></td><td class="wide">${refusal.detail}</td></tr>`)}<//>
      ${one.refused > one.refusals.length && html`<p class="dim">Of the others it is not kept why.</p>`}<//>`}
    ${one.repeated.length > 0 && html`<${Section} title="Run again"><${Table} label="Jobs that run again as others" columns=${["Job", "Runs again as"]}>${one.repeated.map((/** @type {any} */ each) => html`<tr key=${each.retried_as} data-row><td>${each.job_id}</td><td><a href=${to(["jobs", each.retried_as])}>${each.retried_as}</a></td></tr>`)}<//>
      ${one.done > one.repeated.length && html`<p class="dim">The pages of the others say which jobs repeat them.</p>`}<//>`}
    ${open && html`<${Confirm} title="Abort" verb="Abort it" close=${() => show(false)} act=${abort}><p>It is done to no more jobs. What was done stays done.</p><//>`}`}<//>`;
}

function List({ cursor }) {
  const loaded = useData("bulk/operations", { limit: 50, ...(cursor ? { cursor } : {}) }, ["job"], 5000);
  return html`<${Head} title="Bulk operations" sub="The same done to many jobs. Begin one on the page of jobs."><a href=${to("jobs")}>Jobs</a><//>
    <${Shown} loaded=${loaded}>${(/** @type {any} */ { items, next }) => html`${items.length
      ? html`<${Table} label="Bulk operations" columns=${["What", "State", "Progress", "Filter", "By", "Began", "Note"]}>${items.map((/** @type {any} */ one) => html`<tr key=${one.bulk_id} data-row>
          <td><a href=${to(["bulk", one.bulk_id])}>${WORDS[one.action] ?? one.action}<span class="sr"> ${one.filter}</span></a></td><td><${Status} state=${one.state} /></td>
          <td class="wide"><${Progress} of=${one} label=${`Progress of ${one.bulk_id}`} /></td><td><code>${one.filter || "all jobs"}</code></td><td>${one.by}</td><td><${When} at=${one.began} /></td><td>${one.note || "–"}</td></tr>`)}<//>`
      : html`<${Empty} title="Nothing was done to many jobs yet"><p>Find <a href=${to("jobs")}>jobs by a filter</a>, and press <em>All that fit</em>.</p><//>`}
      <div class="bar">${cursor && html`<a href=${to("bulk")}>First page</a>`}${next && html`<a href=${to("bulk", { cursor: next })}>Next page</a>`}</div>`}<//>`;
}

export default function Bulk({ rest, query }) {
  return rest.length ? html`<${One} id=${rest[0]} />` : html`<${List} cursor=${query.cursor ?? ""} />`;
}
