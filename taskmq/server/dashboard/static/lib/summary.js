// @ts-check
/** Counts and alerts that the navigation and the overview share. */
import { may } from "./api.js";
import { useData } from "./data.js";
import { countText } from "./format.js";

const EVERY = 15_000;

export const FAILED = "status:failed,expired,upstream_failed";
export const RUNNING = "status:running";
export const WAITING = "status:queued,dispatched";
export const OVERDUE = "status:queued,scheduled,dispatched due:<-1m";
export const LONG = "status:running duration:>1h";
export const FAILED_DAY = `${FAILED} ended:>-24h`;
export const SUCCEEDED_DAY = "status:succeeded ended:>-24h";
export const FAILED_HOUR = `${FAILED} ended:>-1h`;

/** The tiles of the overview: label, filter, colour, and the figures whose trend they show.
 * @type {[string, string, string, string[]][]} */
export const TILES = [
  ["Running", RUNNING, "good", ["depth_in_hand"]],
  ["Waiting", WAITING, "", ["depth_stored", "depth_ready"]],
  ["Retrying", "status:retrying", "warn", ["retried"]],
  ["Scheduled or held", "status:scheduled,held,waiting", "", []],
  ["Failed, 24 h", FAILED_DAY, "bad", ["failed"]],
  ["Succeeded, 24 h", SUCCEEDED_DAY, "good", ["succeeded"]],
];
const ALL = [...TILES.map(([, filter]) => filter), OVERDUE, LONG, FAILED_HOUR];

/** @typedef {{counts: import("./data.js").Loaded, alerts: import("./data.js").Loaded, groups: import("./data.js").Loaded}} Summary */

/** Return the count of a filter; undefined if it is not loaded.
 * @param {Summary} summary @param {string} filter @returns {{count: number, is_exact: boolean} | undefined} */
export const countOf = ({ counts }, filter) => counts.data?.items.find((/** @type {any} */ one) => one.filter === filter);

/** Return the alerts that fire and are not silenced.
 * @param {Summary} summary @returns {any[]} */
export const firing = ({ alerts }) => alerts.data?.items.filter((/** @type {any} */ one) => one.state === "firing" && !one.is_silenced) ?? [];

/** Return the count that the navigation shows beside a page: running jobs, open groups of failures, firing alerts; null for none.
 * @param {Summary} summary @param {string} page @returns {{text: string, isBad: boolean} | null} */
export function badgeOf(summary, page) {
  const found = page === "alerts" ? { count: firing(summary).length, is_exact: true } : page === "jobs" ? countOf(summary, RUNNING) : page === "failures" ? { count: summary.groups.data?.open, is_exact: true } : undefined;
  return found?.count ? { text: countText(found), isBad: page !== "jobs" } : null;
}

/** Load the counts of the overview, or only those of the navigation, and the firing alerts.
 * @param {boolean} isOverview @param {string} tenant @returns {Summary} */
export function useSummary(isOverview, tenant) {
  // At most a second old on the overview, because pages reload a second after an event.
  const [filter, max_age, least] = isOverview ? [ALL, 1, 5000] : [[RUNNING], 15, EVERY];
  const counts = useData(may("jobs.read") ? "jobs/counts" : null, { filter, max_age, tenant }, ["job", "time"], least);
  const alerts = useData(may("alerts.read") ? "alerts" : null, { states: "firing", tenant }, ["time"], EVERY);
  // The first view has room for ten requests: the overview asks for groups only if stored jobs failed.
  const failed = counts.data?.items.find((/** @type {any} */ one) => one.filter === FAILED_DAY)?.count;
  const groups = useData(may("jobs.read") && (failed || !isOverview) ? "failures/groups" : null, { state: "open", limit: 1, max_age: 15, tenant }, ["job", "time"], EVERY);
  return { counts, alerts, groups };
}
