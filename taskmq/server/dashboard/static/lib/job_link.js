// @ts-check
/**
 * Links to jobs by the ids in messages. One request per page finds out which of them are in the store.
 */
import { may, read, session } from "./api.js";
import { quote } from "./format.js";
import { html, useEffect, useState } from "./html.js";
import { Id } from "./parts.js";
import { to } from "./route.js";

const TOGETHER = 50;
const MOST_KEPT = 5000;
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/** Store ids by requested name, null if not in the store; for the selected tenant.
 * @type {Map<string, Promise<string | null>>} */
const answers = new Map();
/** @type {Map<string, (id: Promise<string | null>) => void>} */
let waiting = new Map();

/** Split a job's name in a message into its tenant prefix, if any, and the submitter's id.
 * @param {string} name */
function parts(name) {
  const found = /^@([^:]*):(.*)$/s.exec(name);
  return found ? { tenant: found[1].replaceAll("%3A", ":").replaceAll("%25", "%"), key: found[2] } : { tenant: "", key: name };
}

/** @param {string} filter @returns {Promise<{id: string, job_id: string}[]>} */
const listJobs = (filter) => read("jobs", { filter, fields: "id,job_id", limit: TOGETHER });

/** Look up store ids by the names in messages.
 * @param {string[]} names */
async function idsOf(names) {
  /** @type {Map<string, string>} */
  const found = new Map();
  const ids = names.filter((name) => UUID.test(name));
  if (ids.length) for (const job of await listJobs(`id:${ids.join()}`)) found.set(job.id, job.id);
  /** @type {Map<string, string[]>} */
  const byTenant = new Map();
  for (const name of names) {
    const { tenant, key } = parts(name);
    if (!found.has(name) && key) byTenant.set(tenant, [...(byTenant.get(tenant) ?? []), name]);
  }
  await Promise.all([...byTenant].map(async ([tenant, those]) => {
    const jobs = await listJobs(`tenant:${quote(tenant)} key:${those.map((name) => quote(parts(name).key)).join()}`);
    for (const name of those) {
      const job = jobs.find((one) => one.job_id === name || one.job_id === parts(name).key);
      if (job) found.set(name, job.id);
    }
  }));
  return found;
}

function ask() {
  const those = [...waiting];
  waiting = new Map();
  for (let at = 0; at < those.length; at += TOGETHER) {
    const some = those.slice(at, at + TOGETHER);
    const found = idsOf(some.map(([name]) => name));
    for (const [name, answer] of some) answer(found.then((ids) => ids.get(name) ?? null));
  }
}

/** @param {string} name @returns {Promise<string | null>} */
function storedId(name) {
  const key = `${session.tenant}\n${name}`;
  let answer = answers.get(key);
  if (answer) return answer;
  if (answers.size >= MOST_KEPT) answers.clear();
  if (!waiting.size) queueMicrotask(ask);
  answer = new Promise((resolve) => waiting.set(name, resolve));
  // A failed lookup is repeated the next time.
  answer.catch(() => answers.delete(key));
  answers.set(key, answer);
  return answer;
}

/** A link to a job.
 * @param {{name: string, queue?: string, children?: unknown}} props `queue`: the queue of its dead letters. */
export function JobLink({ name, queue = "", children = html`<${Id} id=${name} />` }) {
  const [found, set] = useState({ name: "", id: /** @type {string | null | undefined} */ (undefined) });
  useEffect(() => {
    let isGone = false;
    const tell = (/** @type {string | null | undefined} */ id) => { if (!isGone) set({ name, id }); };
    storedId(name).then(tell, () => tell(undefined));
    return () => { isGone = true; };
  }, [name]);
  if (found.name !== name) return html`<span data-loading>${children}</span>`;
  if (found.id === undefined || !name || !may("jobs.read")) return html`<span>${children}</span>`;
  return html`<a href=${found.id ? to(["jobs", found.id]) : to(["failures", name], { queue })}>${children}</a>`;
}
