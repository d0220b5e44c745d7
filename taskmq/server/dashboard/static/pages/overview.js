// @ts-check
/** Overview of running jobs and failures. */
import { may } from "../lib/api.js";
import { useData } from "../lib/data.js";
import { count, failure } from "../lib/format.js";
import { FigurePlots } from "../lib/figures.js";
import { html } from "../lib/html.js";
import { Code, Empty, Head, Section, Loading, State, Table, Tile, When } from "../lib/parts.js";
import { to } from "../lib/route.js";

const TILES = [
  ["Running", "status:running", "good"],
  ["Waiting for a worker", "status:queued,dispatched", ""],
  ["Overdue by a minute", "status:queued,scheduled,dispatched due:<-1m", "warn"],
  ["Retrying", "status:retrying", "warn"],
  ["Scheduled, held, waiting", "status:scheduled,held,waiting", ""],
  ["Failed stored jobs, 24 h", "status:failed,expired,upstream_failed ended:>-24h", "bad"],
  ["Succeeded stored jobs, 24 h", "status:succeeded ended:>-24h", "good"],
];

const FIRST = `from taskmq import TaskMQ

app = TaskMQ(store="sqlite:///jobs.db")

@app.task(name="hello")
def hello(name: str) -> str:
    return f"hello {name}"`;

/** @param {{counts: import("../lib/data.js").Loaded}} props */
const CountTiles = ({ counts: { data, error } }) => TILES.map(([label, filter, kind]) => {
  const found = data?.items.find((/** @type {any} */ one) => one.filter === filter);
  const value = found ? `${count(found.count)}${found.is_exact ? "" : "+"}` : error || data ? "?" : "…";
  return html`<${Tile} key=${label} label=${label} value=${value} href=${to("jobs", { filter })} kind=${found?.count ? kind : ""} />`;
});

function Slots() {
  const loaded = useData("workers", { within: 0.4, max_age: 5 }, ["worker"], 5000);
  const workers = loaded.data?.items ?? [];
  const sum = (/** @type {string} */ name) => workers.reduce((/** @type {number} */ total, /** @type {any} */ one) => total + one[name], 0);
  const value = loaded.data ? `${sum("running")} / ${sum("slots")}` : loaded.error ? "?" : "…";
  return html`<${Tile} label="Busy slots" value=${value} href=${to("workers")} kind=${loaded.data && !workers.length ? "bad" : ""} />`;
}

// Loading more would take too long.
const MOST_SCHEDULES = 200;

const Recent = ({ title, filter, none }) => html`<${Section} title=${title}>
  <${Loading} loaded=${useData("jobs", { filter, limit: 8, cursor: "" })}>${(/** @type {any} */ { items }) => items.length
    ? html`<${Table} label=${title} columns=${["Job", "State", "When", "Error"]}>${items.map((/** @type {any} */ job) => html`<tr key=${job.id} data-row>
        <td><a href=${to(["jobs", job.id])}>${job.task}</a></td><td><${State} state=${job.state} /></td>
        <td><${When} at=${job.end_time ?? job.due_at} /></td><td class="wide">${failure(job.error)}</td></tr>`)}<//>`
    : html`<p class="dim">${none}</p>`}<//>
<//>`;

function NextFires() {
  return html`<${Section} title="Next occurrences"><${Loading} loaded=${useData("schedules", { limit: MOST_SCHEDULES }, ["job"], 15_000)}>${(/** @type {any} */ { items, next: more }) => {
    const next = items.filter((/** @type {any} */ one) => one.next).sort((/** @type {any} */ a, /** @type {any} */ b) => (a.next < b.next ? -1 : 1)).slice(0, 10);
    return next.length
      ? html`<${Table} label="Next occurrences" columns=${["Schedule", "Due", "Starts"]}>${next.map((/** @type {any} */ one) => html`<tr key=${one.name} data-row>
          <td><a href=${to(["schedules", one.name])}>${one.name}</a></td><td><${When} at=${one.next} /></td><td>${one.starts}</td></tr>`)}<//>${more && html`<p class="dim">From the first ${MOST_SCHEDULES} schedules by name. <a href=${to("schedules")}>All schedules</a></p>`}`
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

export default function Overview() {
  // At most a second old, because pages reload a second after an event.
  const counts = useData(may("jobs.read") ? "jobs/counts" : null, { filter: TILES.map(([, filter]) => filter), max_age: 1 }, ["job"], 5000);
  return html`<${Head} title="Overview" />
    ${may("jobs.read") && html`${counts.data && counts.data.items.every((/** @type {any} */ one) => !one.count) && html`<${First} />`}
      <div class="tiles"><${CountTiles} counts=${counts} />${may("workers.read") && html`<${Slots} />`}</div>`}
    ${may("metrics.read") && html`<${FigurePlots} which=${["jobs", "run"]} />`}
    <div class="two">
      ${may("jobs.read") && html`<${Recent} title="Recent failures" filter="status:failed,expired,upstream_failed" none="No failures." />
        <${Recent} title="Running jobs" filter="status:running" none="No running jobs." />`}
      ${may("schedules.read") && html`<${NextFires} />`}
    </div>`;
}
