// @ts-check
/** Plots of what workers have told, over the time that the address says. */
import { useData } from "./data.js";
import { span } from "./format.js";
import { html } from "./html.js";
import { Shown } from "./parts.js";
import { Plot } from "./plot.js";

/** @type {Record<string, [string, number, number]>} name: words, minutes, seconds of a point */
export const RANGES = {
  "15m": ["15 minutes", 15, 60], "1h": ["1 hour", 60, 60], "6h": ["6 hours", 360, 300],
  "24h": ["24 hours", 1440, 900], "7d": ["7 days", 10_080, 7200],
};

/** Since when, by whole minutes, so that what is asked is the same for a minute.
 * @param {string} range */
export function since(range) {
  const [, minutes] = RANGES[range] ?? RANGES["1h"];
  return new Date((Math.floor(Date.now() / 60_000) - minutes) * 60_000).toISOString();
}

/** @type {Record<string, {title: string, unit: string, metrics: [string, string, string][], show?: (value: number) => string}>} */
const PLOTS = {
  jobs: { title: "Jobs", unit: "in each step", metrics: [["succeeded", "succeeded", "good"], ["failed", "failed", "bad"], ["retried", "retried", "warn"]] },
  wait: { title: "Wait", unit: "from due to the start", metrics: [["wait_p50", "half", "cool"], ["wait_p95", "95 of 100", "odd"], ["wait_p99", "99 of 100", "warn"]], show: span },
  run: { title: "Run time", unit: "of runs that ended", metrics: [["run_p50", "half", "cool"], ["run_p95", "95 of 100", "odd"], ["run_p99", "99 of 100", "warn"]], show: span },
  rate: { title: "Failures", unit: "share of those that ended", metrics: [["failure_rate", "failed", "bad"]], show: (value) => `${Math.round(value * 1000) / 10} %` },
};

/** Plots side by side, of what is asked for at once.
 * @param {{which: string[], range?: string, task?: string, queue?: string}} props */
export function FigurePlots({ which, range = "1h", task = "", queue = "" }) {
  const [, , step] = RANGES[range] ?? RANGES["1h"];
  const metric = which.flatMap((name) => PLOTS[name].metrics.map(([one]) => one)).join();
  // Schedulers count what they have heard every few seconds: all dashboards share an answer.
  const loaded = useData("metrics/query", { metric, since: since(range), step, task, queue, max_age: 10 }, ["job"], 15_000);
  return html`<div class="two">${which.map((name) => html`<section class="card" key=${name}><${Shown} loaded=${loaded}>${(/** @type {any} */ { items }) => {
    const { title, unit, metrics, show } = PLOTS[name];
    const lines = metrics.map(([one, label, color]) => ({ label, color, points: items.find((/** @type {any} */ found) => found.metric === one)?.points ?? [] }));
    return html`<${Plot} title=${title} unit=${unit} lines=${lines} show=${show} />`;
  }}<//></section>`)}</div>`;
}
