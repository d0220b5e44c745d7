// @ts-check
/** The pages and their modules, each loaded on first use. */

/**
 * A page is in a group of the navigation, there under the name `nav`, or it is a tab of the page `of`; `view` is its module, if that has another name. The account belongs to the user's menu.
 * @typedef {{name: string, title: string, nav?: string, needs: string, group?: string, of?: string, view?: string}} PageEntry
 */

/** @type {PageEntry[]} */
export const PAGES = [
  { name: "", title: "Overview", needs: "", group: "" },
  { name: "jobs", title: "Jobs", needs: "jobs.read", group: "Work" },
  { name: "tasks", title: "Tasks", needs: "tasks.read", of: "jobs" },
  { name: "bulk", title: "Bulk operations", needs: "jobs.read", of: "jobs" },
  { name: "runs", title: "Runs", nav: "Workflows", needs: "workflows.read", group: "Work" },
  { name: "workflows", title: "Workflows", needs: "definitions.read", of: "runs" },
  { name: "schedules", title: "Schedules", needs: "schedules.read", group: "Work" },
  { name: "failures", title: "Failures", needs: "jobs.read", group: "Work" },
  { name: "dead-letters", title: "Dead letters", needs: "dead_letters.read", of: "failures" },
  { name: "resolved", title: "Resolved failures", needs: "jobs.read", of: "failures", view: "failures" },
  { name: "muted", title: "Muted failures", needs: "jobs.read", of: "failures", view: "failures" },
  { name: "queues", title: "Queues", needs: "queues.read", group: "Capacity" },
  { name: "workers", title: "Workers", needs: "workers.read", group: "Capacity" },
  { name: "nodes", title: "Nodes", needs: "nodes.read", group: "Capacity" },
  { name: "pools", title: "Pools", needs: "pools.read", group: "Capacity" },
  { name: "quotas", title: "Quotas", needs: "pools.read", of: "pools" },
  { name: "metrics", title: "Metrics", needs: "metrics.read", group: "Observe" },
  { name: "logs", title: "Logs", needs: "logs.read", group: "Observe" },
  { name: "alerts", title: "Alerts", needs: "alerts.read", group: "Observe" },
  { name: "audit", title: "Audit", needs: "audit.read", group: "Observe" },
  { name: "system", title: "System", needs: "system.read", group: "Observe" },
  { name: "users", title: "Users", needs: "members.read", group: "Admin" },
  { name: "account", title: "Account", needs: "account.read" },
];

/** Return the tabs that a page belongs to, itself and its siblings, of those that the user may read.
 * @param {string} name @param {(permission: string) => boolean} may */
export function tabsOf(name, may) {
  const main = PAGES.find((one) => one.name === name)?.of ?? name;
  return PAGES.filter((one) => (one.name === main || one.of === main) && (!one.needs || may(one.needs)));
}

/** Return the groups of the navigation with the first permitted page of each set of tabs.
 * @param {(permission: string) => boolean} may @returns {[string, PageEntry[]][]} */
export function groups(may) {
  const mains = PAGES.filter((one) => one.group !== undefined);
  return [...new Set(mains.map((one) => one.group ?? ""))].map((group) => [group, mains.filter((one) => one.group === group).flatMap((one) => tabsOf(one.name, may).slice(0, 1))]);
}

/** @type {Map<string, any>} */
const views = new Map();

const SINGLE = /** @type {Record<string, string>} */ ({ jobs: "job", runs: "run", failures: "message" });

/** Return the module of a page; single jobs, runs and messages have their own.
 * @param {string} name @param {boolean} isSingle */
export const keyOf = (name, isSingle) => (isSingle && SINGLE[name]) || PAGES.find((one) => one.name === name)?.view || name.replace("-", "_") || "overview";

/** Return the component of a page if its module is loaded.
 * @param {string} key */
export const viewOf = (key) => views.get(key);

/** Load the module of a page.
 * @param {string} key @returns {Promise<void>} */
export async function openView(key) {
  views.set(key, (await import(`../pages/${key}.js`)).default);
}
