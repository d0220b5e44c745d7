// @ts-check
/** Plots of job metrics over the selected period. */
import { useData } from "./data.js";
import { count, span } from "./format.js";
import { html } from "./html.js";
import { Loading } from "./parts.js";
import { Plot } from "./plot.js";
import { route, to } from "./route.js";

/** @type {Record<string, [string, number, number]>} name: label, minutes, seconds per point */
export const RANGES = {
  "15m": ["15 minutes", 15, 60], "1h": ["1 hour", 60, 60], "6h": ["6 hours", 360, 300],
  "24h": ["24 hours", 1440, 900], "7d": ["7 days", 10_080, 7200],
};

/** Links that choose the period, which the address keeps.
 * @param {{chosen: string, of?: string[]}} props */
export const Ranges = ({ chosen, of = Object.keys(RANGES) }) => html`<div class="chips" role="group" aria-label="Period">${of.map((name) => html`<a key=${name} href=${to(route().path, { ...route().query, range: name })} aria-current=${name === chosen ? "true" : undefined}>${RANGES[name][0]}</a>`)}</div>`;

/** Return the start of the period in whole minutes, so that requests stay identical for a minute.
 * @param {string} range */
export function since(range) {
  const [, minutes] = RANGES[range] ?? RANGES["1h"];
  return new Date((Math.floor(Date.now() / 60_000) - minutes) * 60_000).toISOString();
}

/** Label a duration on an axis, where all have the same unit.
 * @param {number} seconds */
const mark = (seconds) => (seconds < 1 ? `${count(Math.round(seconds * 1e6) / 1000)} ms` : `${count(seconds)} s`);
const durations = { show: span, mark, isLog: true };

/** @type {Record<string, {title: string, unit: string, metrics: [string, string, string][], show?: (value: number) => string, mark?: (value: number) => string, isLog?: boolean, isStacked?: boolean, least?: number}>} */
const PLOTS = {
  jobs: { title: "Throughput", unit: "jobs that ended", metrics: [["succeeded", "succeeded", "good"], ["failed", "failed", "bad"], ["retried", "retried", "warn"]], show: count, isStacked: true, least: 1 },
  wait: { title: "Wait", unit: "from due time to start", metrics: [["wait_p50", "p50", "cool"], ["wait_p95", "p95", "odd"], ["wait_p99", "p99", "warn"]], ...durations },
  run: { title: "Run time", unit: "of finished runs", metrics: [["run_p50", "p50", "cool"], ["run_p95", "p95", "odd"], ["run_p99", "p99", "warn"]], ...durations },
  depth: { title: "Depth", unit: "most jobs in a step", metrics: [["depth_in_hand", "with workers", "run"], ["depth_ready", "broker", "cool"], ["depth_stored", "store", "warn"]], show: count, isStacked: true, least: 1 },
  hand: { title: "Jobs with workers", unit: "most jobs in a step", metrics: [["depth_in_hand", "with workers", "run"]], show: count, isStacked: true, least: 1 },
  rate: { title: "Failures", unit: "share of finished jobs", metrics: [["failure_rate", "failed", "bad"]], show: (value) => `${Math.round(value * 1000) / 10} %` },
};

/** Load the figures of plots with one request.
 * @param {{which: string[], range?: string, task?: string, queue?: string}} of */
export function useFigures({ which, range = "1h", task = "", queue = "" }) {
  const [, , step] = RANGES[range] ?? RANGES["1h"];
  const metric = which.flatMap((name) => PLOTS[name].metrics.map(([one]) => one)).join();
  // Schedulers update metrics every few seconds, so all dashboards share a response.
  return useData(metric ? "metrics/query" : null, { metric, since: since(range), step, task, queue, max_age: 10 }, ["job"], 15_000);
}

/** Show plots of loaded figures.
 * @param {{which: string[], range?: string, loaded: import("./data.js").Loaded}} props */
export function Plots({ which, range = "1h", loaded }) {
  const [, , step] = RANGES[range] ?? RANGES["1h"];
  return html`${which.map((name) => html`<section class=${`card plot-${name}`} key=${name}><${Loading} loaded=${loaded}>${(/** @type {any} */ { items, versions }) => {
    const { metrics, ...plot } = PLOTS[name];
    // Jobs are counted per step: the present one has not ended.
    const until = plot.isStacked ? Date.now() - step * 1000 : Infinity;
    const lines = metrics.map(([one, label, color]) => ({ label, color, points: items.find((/** @type {any} */ found) => found.metric === one)?.points.filter((/** @type {any} */ one) => Date.parse(one.at) <= until) ?? [] }));
    return html`<${Plot} ...${plot} unit=${name === "jobs" ? `${plot.unit}, per ${count(step / 60)} min` : plot.unit} lines=${lines} deploys=${versions} />`;
  }}<//></section>`)}`;
}

/** Show plots, loaded with one request.
 * @param {{which: string[], range?: string, task?: string, queue?: string}} of */
export const FigurePlots = (of) => html`<${Plots} ...${of} loaded=${useFigures(of)} />`;
