// @ts-check
/** The pages and their modules, each loaded on first use. */

/** @type {{name: string, title: string, needs: string}[]} */
export const PAGES = [
  { name: "", title: "Overview", needs: "" },
  { name: "jobs", title: "Jobs", needs: "jobs.read" },
  { name: "bulk", title: "Bulk operations", needs: "jobs.read" },
  { name: "tasks", title: "Tasks", needs: "tasks.read" },
  { name: "queues", title: "Queues", needs: "queues.read" },
  { name: "workers", title: "Workers", needs: "workers.read" },
  { name: "nodes", title: "Nodes", needs: "nodes.read" },
  { name: "pools", title: "Pools", needs: "pools.read" },
  { name: "quotas", title: "Quotas", needs: "pools.read" },
  { name: "schedules", title: "Schedules", needs: "schedules.read" },
  { name: "workflows", title: "Workflows", needs: "workflows.read" },
  { name: "dead-letters", title: "Dead letters", needs: "dead_letters.read" },
  { name: "failures", title: "Failures", needs: "jobs.read" },
  { name: "logs", title: "Logs", needs: "logs.read" },
  { name: "metrics", title: "Metrics", needs: "metrics.read" },
  { name: "alerts", title: "Alerts", needs: "alerts.read" },
  { name: "audit", title: "Audit", needs: "audit.read" },
  { name: "users", title: "Users", needs: "members.read" },
  { name: "account", title: "Account", needs: "account.read" },
];

/** @type {Map<string, any>} */
const views = new Map();

const SINGLE = /** @type {Record<string, string>} */ ({ jobs: "job", failures: "message" });

/** Return the module of a page; single jobs and messages have their own.
 * @param {string} name @param {boolean} isSingle */
export const keyOf = (name, isSingle) => (isSingle && SINGLE[name]) || name.replace("-", "_") || "overview";

/** Return the component of a page if its module is loaded.
 * @param {string} key */
export const viewOf = (key) => views.get(key);

/** Load the module of a page.
 * @param {string} key @returns {Promise<void>} */
export async function openView(key) {
  views.set(key, (await import(`../pages/${key}.js`)).default);
}
