// @ts-check
/** The state of a queue: whether its jobs run, wait, or become more. */
import { may, session } from "./api.js";
import { useData } from "./data.js";
import { since } from "./figures.js";
import { span } from "./format.js";

/** Return the number of jobs that wait in a queue, in the store and at the broker.
 * @param {any} one */
export const backlogOf = (one) => one.ready + (one.stored ?? 0);

/** Return a rate of jobs a second, as text.
 * @param {number | null} value */
export const rate = (value) => (value === null ? "–" : value.toLocaleString("en", { maximumSignificantDigits: value < 100 ? 2 : 3 }));

/** Return when the waiting jobs of a queue have started, as text.
 * @param {any} one */
export const emptyIn = (one) => (one.advice ? "never" : span(one.empty_in));

/** Whether a queue has jobs of the app: those of lost messages only matter if they have any.
 * @param {any} one */
export const isWork = (one) => !one.queue.startsWith("taskmq.") || one.dead + backlogOf(one) > 0;

/** Return the places of a queue's jobs, for a bar.
 * @param {any} one @returns {[string, number | null, string][]} */
export const placesOf = (one) => [["with workers", one.in_hand, "run"], ["at the broker", one.ready, "cool"], ["in the store", one.stored ?? 0, "rest"]];

/** Return how long the oldest job of a queue has waited, as text.
 * @param {any} one @param {number} at when it was read */
export const waitOf = (one, at) => (one.oldest ? span(Math.max(0, (at - Date.parse(one.oldest)) / 1000)) : "–");

/** Load the depths of all queues over a day, for small trends.
 * @returns {Map<string, (number | null)[]>} by queue: the most jobs of each half hour */
export function useDepths() {
  const { data } = useData(may("metrics.read") && !session.tenant ? "metrics/query" : null, { metric: "depth_stored,depth_ready,depth_in_hand", since: since("24h"), step: 1800, by: "queue", max_age: 60 }, ["job"], 60_000);
  /** @type {Map<string, (number | null)[]>} */
  const found = new Map();
  for (const { labels, points } of data?.items ?? []) {
    const before = found.get(labels.queue);
    found.set(labels.queue, points.map((/** @type {any} */ one, /** @type {number} */ at) => (one.value === null ? null : one.value + (before?.[at] ?? 0))));
  }
  return found;
}

/** Load how long jobs waited in each queue over a day, in half hours; the longest waits first.
 * @returns {import("./plot.js").Line[]} */
export function useWaits() {
  const { data } = useData(may("metrics.read") ? "metrics/query" : null, { metric: "wait_p95", since: since("24h"), step: 1800, by: "queue", max_age: 60 }, ["job"], 60_000);
  const most = (/** @type {any} */ line) => Math.max(...line.points.map((/** @type {any} */ one) => one.value));
  return (data?.items ?? []).map((/** @type {any} */ { labels, points }) => ({ label: labels.queue, color: "", points })).filter(most).sort((/** @type {any} */ a, /** @type {any} */ b) => most(b) - most(a));
}

/** @typedef {{word: string, icon: string, kind: string}} QueueState */

/** Return the state of a queue.
 * @param {any} one @returns {QueueState | null} null if it is not known */
export function stateOf(one) {
  if (one.is_paused ?? one.paused) return { word: "Paused", icon: "held", kind: "held" };
  if (backlogOf(one) > 0 && !one.consumers) return { word: "No workers", icon: "workers", kind: "failed" };
  if (one.advice) return { word: "Growing", icon: "queues", kind: "retrying" };
  return one.is_paused === null ? null : { word: "Active", icon: "succeeded", kind: "succeeded" };
}
