// @ts-check
/** Jobs matching a filter, with bulk operations. */
import { may, part, read, session } from "../lib/api.js";
import { Bulk } from "../lib/bulk.js";
import { useData } from "../lib/data.js";
import { Chips, Filter, withoutLast } from "../lib/filter.js";
import { between, countText, failure, span, waited } from "../lib/format.js";
import { Histogram } from "../lib/histogram.js";
import { html, useEffect, useMemo, useRef, useState } from "../lib/html.js";
import { Empty, Head, TaskProgress, Id, Loading, State, Table, When, Pager } from "../lib/parts.js";
import { change, to } from "../lib/route.js";

const CHIPS = [
  ["all", ""], ["running", "running"], ["waiting", "queued,dispatched"], ["scheduled", "scheduled,held,waiting"],
  ["retrying", "retrying"], ["succeeded", "succeeded"], ["failed", "failed,expired,upstream_failed"], ["cancelled", "cancelled,skipped"],
];
const WAITS = new Set(["queued", "scheduled", "dispatched"]);
const LATE = 60_000;
const LONG = 3_600_000;

const VIA = /(?:^|\s)via:(store|broker|any)(?=\s|$)/;
const LANES = [["stored", "store", ""], ["sent", "broker", "via:broker"], ["both", "any", "via:any"]];

/** Links to the stored jobs, to the recorded ones that were sent to the broker, and to both.
 * @param {{filter: string}} props */
function Lanes({ filter }) {
  const via = VIA.exec(filter)?.[1] ?? "store";
  const rest = filter.replace(VIA, "").trim();
  return html`<div class="chips" role="group" aria-label="Lane">
    ${LANES.map(([name, value, term]) => html`<a key=${name} href=${to("jobs", { filter: `${term} ${rest}`.trim() })} aria-current=${via === value ? "true" : undefined}>${name}</a>`)}</div>`;
}

/** @param {any} job */
const isLong = (job) => job.state === "running" && job.start_time && Date.now() - new Date(job.start_time).getTime() > LONG;

/** @param {any} job */
const isLate = (job) => WAITS.has(job.state) && job.due_at && Date.now() - new Date(job.due_at).getTime() > LATE;

function Nothing({ filter }) {
  if (filter.trim() === "via:broker") return html`<${Empty} title="No sent jobs"><p>Sent jobs appear here if their queue has <code>record="all"</code>.</p><//>`;
  if (!filter) return html`<${Empty} title="No jobs"><p>Submitted jobs appear here until their retention expires. <a href=${to("tasks")}>Run a task</a></p><//>`;
  return html`<${Empty} title="No matching jobs">
    <p><a href=${to("jobs", { filter: withoutLast(filter) })}>Remove the last term</a> · <a href=${to("jobs")}>All jobs</a></p>
    <p class="dim">Jobs are deleted when their retention expires.</p><//>`;
}

/** Explains why a job is late; loaded once it is on the screen.
 * @param {{job: any, mark: string}} props */
function Why({ job, mark }) {
  const at = useRef(/** @type {HTMLElement | null} */ (null));
  const [reason, set] = useState("");
  useEffect(() => {
    const seen = new IntersectionObserver((changes) => {
      if (!changes.some((one) => one.isIntersecting)) return;
      seen.disconnect();
      read(`jobs/${part(job.id)}/explain`).then(({ answer }) => set(answer), () => undefined);
    });
    if (at.current) seen.observe(at.current);
    return () => seen.disconnect();
  }, [job.id, job.version]);
  const since = mark === "long" ? "running for over an hour" : "overdue by more than a minute";
  return html`<a ref=${at} class="state s-retrying" title=${`${since}: show the reasons`} href=${to(["jobs", job.id])}><span aria-hidden="true">⚠</span> ${mark}</a>${reason && html` <span class="dim">${reason}</span>`} `;
}

function Row({ job, chosen, choose, canBulk, hasTenant }) {
  const mark = isLate(job) ? "late" : isLong(job) ? "long" : "";
  return html`<tr data-row class=${mark && "is-late"}>
    ${canBulk && html`<td class="narrow"><input type="checkbox" aria-label=${`Select ${job.job_id}`} checked=${chosen.has(job.id)} onChange=${() => choose(job.id)} /></td>`}
    <td><a href=${to(["jobs", job.id])}><${Id} id=${job.job_id} /></a></td>
    <td><${State} state=${job.state} /></td>
    <td>${job.task}</td><td class="p2">${job.queue}</td>${hasTenant && html`<td class="p3">${job.tenant || "–"}</td>`}
    <td><${When} at=${job.due_at ?? job.submitted_at} /></td>
    <td class="number p3">${job.first_start_time ? span(waited(job)) : "–"}</td>
    <td class="number">${job.start_time ? span(between(job.start_time, job.end_time ?? (job.state === "running" ? new Date().toISOString() : null))) : "–"}</td>
    <td class="number p4">${job.attempt}</td>
    <td class="wide">${mark && html`<${Why} job=${job} mark=${mark} />`}${job.progress && !job.end_time ? html`<${TaskProgress} ...${job.progress} />` : job.error ? html`<span class="c-bad">${failure(job.error)}</span>` : job.summary && html`<span class="dim">${job.summary}</span>`}</td>
  </tr>`;
}

export default function Jobs({ query }) {
  const { filter = "", cursor = "", selected = "" } = query;
  const loaded = useData("jobs", { filter, cursor, limit: 50, expand: "progress" });
  const total = useData("jobs/count", { filter });
  const [bulk, showBulk] = useState(/** @type {{filter: string, what: string} | null} */ (null));
  const chosen = useMemo(() => new Set(selected.split(",").filter(Boolean)), [selected]);
  const choose = (/** @type {string} */ id) => { const next = new Set(chosen); next.delete(id) || next.add(id); change({ selected: [...next].join() }); };
  const canBulk = may("jobs.bulk");
  const hasTenant = session.caller?.memberships.some((one) => one.tenant === "*") || (session.caller?.memberships.length ?? 0) > 1;
  const columns = [...(canBulk ? [html`<span class="sr">Selected</span>`] : []), "Job", "State", "Task", ["Queue", "p2"], ...(hasTenant ? [["Tenant", "p3"]] : []), "Due", ["Waited", "number p3"], ["Ran", "number"], ["Attempt", "number p4"], "Progress, reason or error"];
  const reload = () => { loaded.reload(); total.reload(); };
  return html`<${Head} of=${loaded} title="Jobs" sub=${total.data ? `${countText(total.data)} ${total.data.count === 1 ? "job" : "jobs"}` : ""}>
      ${may("jobs.submit") && html`<a href=${to("tasks")}>Run a task</a>`}
      ${canBulk && html`${chosen.size > 0 && html`<button type="button" onClick=${() => showBulk({ filter: `${VIA.exec(filter)?.[0] ?? ""} id:${[...chosen].join()}`.trim(), what: `${chosen.size} selected` })}>Change ${chosen.size} selected …</button>
        <button type="button" onClick=${() => change({ selected: "" })}>Clear selection</button>`}
        <button type="button" onClick=${() => showBulk({ filter, what: "" })}>Select all${total.data ? ` ${countText(total.data)}` : ""} …</button>`}
    <//>
    <${Filter} page="jobs" filter=${filter} placeholder="status:failed task:billing.* created:>-24h" />
    <div class="bar"><${Chips} page="jobs" filter=${filter} of=${CHIPS} /><span class="grow"></span><${Lanes} filter=${filter} /></div>
    ${(VIA.exec(filter)?.[1] ?? "store") === "store" && html`<${Histogram} filter=${filter} />`}
    <${Loading} loaded=${loaded}>${(/** @type {any} */ page) => html`
      ${page.items.length
        ? html`<${Table} label="Jobs" columns=${columns}>${page.items.map((/** @type {any} */ job) => html`<${Row} key=${job.id} job=${job} chosen=${chosen} choose=${choose} canBulk=${canBulk} hasTenant=${hasTenant} />`)}<//>`
        : html`<${Nothing} filter=${filter} />`}
      ${page.is_bounded && html`<p class="dim">The search stopped before it examined all jobs; the next page continues from there.</p>`}
      <${Pager} next=${page.next} />`}<//>
    ${bulk && html`<${Bulk} ...${bulk} close=${() => showBulk(null)} reload=${reload} />`}`;
}
