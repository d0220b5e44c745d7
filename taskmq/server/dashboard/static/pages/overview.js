// @ts-check
/** Overview of running jobs and failures. */
import { may } from "../lib/api.js";
import { Attention } from "../lib/attention.js";
import { backlogOf, isWork, placesOf, stateOf, waitOf } from "../lib/backlog.js";
import { useData } from "../lib/data.js";
import { countText, failure, plural } from "../lib/format.js";
import { Plots, RANGES, Ranges, since, useFigures } from "../lib/figures.js";
import { html, useEffect, useState } from "../lib/html.js";
import { Icon } from "../lib/icons.js";
import { Code, Empty, Head, QueueWord, TaskProgress, Section, Loading, Segments, Spark, State, Table, Tile, When } from "../lib/parts.js";
import { to } from "../lib/route.js";
import { countOf, FAILED_DAY, OVERDUE, RUNNING, SUCCEEDED_DAY, TILES, WAITING } from "../lib/summary.js";

const FIRST = ["from taskmq import TaskMQ", "", 'app = TaskMQ(store="sqlite:///jobs.db")', "", '@app.task(name="hello")', "def hello(name: str) -> str:", '    return f"hello {name}"'].join("\n");
const PLOTS = ["jobs", "run", "wait", "depth"];

/** Explain a count: the busy slots, the overdue jobs, or the share of the failed and the succeeded jobs.
 * @param {import("../lib/summary.js").Summary} summary @param {string} filter */
function noteOf(summary, filter) {
  const overdue = countOf(summary, OVERDUE);
  if (filter === RUNNING && may("workers.read")) return html`<${Slots} />`;
  if (filter === WAITING) return overdue?.count ? html`<span class="c-warn">${countText(overdue)} overdue</span>` : "";
  if (filter !== FAILED_DAY && filter !== SUCCEEDED_DAY) return "";
  const ended = [FAILED_DAY, SUCCEEDED_DAY].map((one) => countOf(summary, one)?.count ?? 0);
  const share = (100 * ended[filter === FAILED_DAY ? 0 : 1]) / (ended[0] + ended[1]);
  return share >= 0 ? `${Math.round(share * 10) / 10} % of ended` : "";
}

/** Return the sum of figures over time, without the present step, which has not ended.
 * @param {import("../lib/data.js").Loaded} figures @param {string[]} names @returns {number[]} */
function trendOf({ data }, names) {
  const found = (data?.items ?? []).filter((/** @type {any} */ one) => names.includes(one.metric));
  return (found[0]?.points ?? []).slice(0, -1).map((/** @type {any} */ _, /** @type {number} */ at) => found.reduce((/** @type {number} */ sum, /** @type {any} */ one) => sum + (one.points[at]?.value ?? 0), 0));
}

/** @param {{summary: import("../lib/summary.js").Summary, figures: import("../lib/data.js").Loaded, range: string}} props */
const CountTiles = ({ summary, figures, range }) => TILES.map(([label, filter, kind, names]) => {
  const found = countOf(summary, filter);
  const value = found ? countText(found) : summary.counts.isLoading ? "…" : "?";
  const trend = trendOf(figures, names);
  return html`<${Tile} key=${label} label=${label} value=${value} note=${noteOf(summary, filter)} href=${to("jobs", { filter })} kind=${found?.count ? kind : ""} trend=${trend.length > 0 && html`<${Spark} of=${trend} label=${`Trend over ${RANGES[range][0]}`} />`} />`;
});

/** The busy slots of all workers, as text. */
function Slots() {
  const loaded = useData("workers", { within: 0.4, max_age: 5 }, ["worker"], 5000);
  const workers = loaded.data?.items ?? [];
  const sum = (/** @type {string} */ name) => workers.reduce((/** @type {number} */ total, /** @type {any} */ one) => total + one[name], 0);
  if (!loaded.data) return loaded.error ? "?" : "…";
  return workers.length ? `${sum("running")} of ${plural(sum("slots"), "slot")} busy` : html`<span class="c-bad">no workers</span>`;
}

// Loading more would take too long.
const MOST_SCHEDULES = 200;
const MOST_QUEUES = 8;
const MOST_JOBS = 6;
const MOST_CHANGES = 4;
const MOST_ENTRIES = 50;
// Past participles that no rule builds.
const DONE = /** @type {any} */ ({ __proto__: null, put: "saved", run: "run", policy: "policy changed" });
const SETTINGS = /^(alert|definition|node|pool|queue|quota|reaction|schedule|workflow)\./;

/** What changed in the period: versions of the app, and settings. */
function Changes({ figures, range }) {
  const from = since(range);
  // The first view has room for ten requests.
  const [isLater, wait] = useState(false);
  useEffect(() => { const timer = setTimeout(() => wait(true), 500); return () => clearTimeout(timer); }, []);
  const loaded = useData(isLater ? "audit" : null, { since: from, limit: MOST_ENTRIES }, ["time"], 15_000);
  const versions = (figures.data?.versions ?? []).filter((/** @type {any} */ one) => one.first >= from).map((/** @type {any} */ one) => ({ icon: "workers", at: one.first, text: `Version ${one.version}`, more: "", href: to("workers", { by: "version" }) }));
  return html`<${Section} title="What changed" kind="brief"><${Loading} loaded=${loaded}>${(/** @type {any} */ { items, next }) => {
    const settings = items.filter((/** @type {any} */ one) => SETTINGS.test(one.action)).map((/** @type {any} */ one) => {
      const [kind, verb] = one.action.split(".");
      return { icon: "audit", at: one.at, text: `${kind[0].toUpperCase()}${kind.slice(1)} ${one.subject || "of every rule"} ${DONE[verb] ?? verb.replace(/e?$/, "ed")}`, more: [one.user && ` by ${one.user}`, one.note && `: ${one.note}`], href: to("audit", { action: one.action }) };
    });
    const found = [...versions, ...settings].sort((a, b) => (a.at < b.at ? 1 : -1)).slice(0, MOST_CHANGES);
    return html`${found.length ? html`<ul>${found.map((one) => html`<li key=${one.at + one.text}><${Icon} name=${one.icon} /><a href=${one.href}>${one.text}</a><span class="dim"><${When} at=${one.at} />${one.more}</span></li>`)}</ul>` : !next && html`<p class="dim">No changes in ${RANGES[range][0]}.</p>`}
      ${next && found.length < MOST_CHANGES && html`<p class="dim">From the last ${MOST_ENTRIES} audit entries. <a href=${to("audit")}>All entries</a></p>`}`;
  }}<//><//>`;
}

/** Lists the queues with the most jobs. */
function Depths({ loaded }) {
  const link = html`<a href=${to("queues")}>All queues</a>`;
  return html`<${Section} title="Queues" kind="is-wide" actions=${link}><${Loading} loaded=${loaded}>${(/** @type {any} */ { queues }) => html`<${Table} none="No queues." label="Queues" columns=${["Queue", "Where jobs are", ["Backlog", "number"], ["Oldest", "number p2"], "State"]}>${queues.filter(isWork).sort((a, b) => backlogOf(b) - backlogOf(a)).slice(0, MOST_QUEUES).map((one) => html`<tr key=${one.queue} data-row>
        <td><a href=${to(["queues", one.queue])}>${one.queue}</a></td>
        <td class="bars"><${Segments} of=${[...placesOf(one)]} /></td>
        <td class="number">${countText({ ...one, count: backlogOf(one) })}</td><td class="number p2">${waitOf(one, loaded.at)}</td><td><${QueueWord} state=${stateOf(one)} /></td></tr>`)}<//>`}<//><//>`;
}

/** Lists jobs that match a filter, if the summary counts any. */
function Recent({ title, filter, none, summary }) {
  const loaded = useData(countOf(summary, filter)?.count || summary.counts.error ? "jobs" : null, { filter, limit: MOST_JOBS, cursor: "", expand: "progress" });
  const link = html`<a href=${to("jobs", { filter })}>All</a>`;
  return html`<${Section} title=${title} kind="is-half" actions=${link}><${Loading} loaded=${loaded}>${(/** @type {any} */ { items }) => html`<${Table} label=${title} columns=${["Job", "State", "When", "Error or progress"]}>${items.map((/** @type {any} */ job) => html`<tr key=${job.id} data-row>
        <td><a href=${to(["jobs", job.id])}>${job.task}</a></td><td><${State} state=${job.state} /></td>
        <td><${When} at=${job.end_time ?? job.start_time ?? job.due_at} /></td><td class="wide">${job.progress && !job.end_time ? html`<${TaskProgress} ...${job.progress} />` : failure(job.error)}</td></tr>`)}<//>`}<//>
    ${summary.counts.data && !loaded.path && html`<p class="dim">${none}</p>`}<//>`;
}

function NextFires() {
  return html`<${Section} title="Next occurrences"><${Loading} loaded=${useData("schedules", { limit: MOST_SCHEDULES }, ["job"], 15_000)}>${(/** @type {any} */ { items, next: more }) => {
    const next = items.filter((/** @type {any} */ one) => one.next).sort((/** @type {any} */ a, /** @type {any} */ b) => (a.next < b.next ? -1 : 1)).slice(0, 10);
    return next.length
      ? html`<${Table} label="Next occurrences" columns=${["Schedule", "Starts", ["Due", "number"]]}>${next.map((/** @type {any} */ one) => html`<tr key=${one.name} data-row>
          <td class="tight"><a href=${to(["schedules", one.name])}>${one.name}</a></td><td class="tight">${one.starts}</td><td class="number"><${When} at=${one.next} /></td></tr>`)}<//>${more && html`<p class="dim">From the first ${MOST_SCHEDULES} schedules by name. <a href=${to("schedules")}>All schedules</a></p>`}`
      : html`<p class="dim">No schedules.</p>`;
  }}<//><//>`;
}

/** First steps, if there are no jobs at all; cancelled and older ones have no tile. */
function First() {
  const { data } = useData("jobs/count");
  if (data?.count !== 0) return null;
  return html`<${Empty} title="No jobs yet">
    <p>Write a task and run <code>taskmq dev</code> in its folder:</p><${Code} label="An app with a task" text=${FIRST} />
    ${may("jobs.submit") && html`<p><a href=${to("tasks")}>Run a task from here</a></p>`}
  <//>`;
}

/** @param {{summary: import("../lib/summary.js").Summary, query: Record<string, string>}} props */
export default function Overview({ summary, query }) {
  const { data } = summary.counts;
  const queues = useData(may("queues.read") ? "queues" : null, { max_age: 3 }, ["worker", "job"], 5000);
  const range = RANGES[query.range] ? query.range : "24h";
  const figures = useFigures({ which: may("metrics.read") ? PLOTS : [], range });
  return html`<${Head} title="Overview">${may("metrics.read") && html`<${Ranges} chosen=${range} of=${["1h", "6h", "24h"]} />`}${may("jobs.submit") && html`<a href=${to("tasks")}>Run a task</a>`}<//>
    ${may("jobs.read") && html`${data && data.items.every((/** @type {any} */ one) => !one.count) && html`<${First} />`}
      <div class="tiles"><${CountTiles} summary=${summary} figures=${figures} range=${range} /></div>`}
    <div class="six">
      <div class="stack"><${Attention} summary=${summary} queues=${queues} />${may("audit.read") && html`<${Changes} figures=${figures} range=${range} />`}</div>
      ${may("metrics.read") && html`<${Plots} which=${PLOTS} range=${range} loaded=${figures} />`}
      ${may("queues.read") && html`<${Depths} loaded=${queues} />`}
      ${may("schedules.read") && html`<${NextFires} />`}
      ${may("jobs.read") && html`<${Recent} title="Running jobs" filter=${RUNNING} none="No running jobs." summary=${summary} />
        <${Recent} title="Recent failures" filter=${FAILED_DAY} none="No failures in 24 h." summary=${summary} />`}
    </div>`;
}
