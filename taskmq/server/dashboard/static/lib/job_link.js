// @ts-check
/**
 * Links to jobs by the ids that messages have. Which of them the store has is asked once for a page.
 */
import { may, read, session } from "./api.js";
import { quoted } from "./format.js";
import { html, useEffect, useState } from "./html.js";
import { Id } from "./parts.js";
import { to } from "./route.js";

const TOGETHER = 50;
const MOST_KEPT = 5000;
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/** The store's ids by the names that were asked for, null where there is none; of the tenant that was chosen.
 * @type {Map<string, Promise<string | null>>} */
const answers = new Map();
/** @type {Map<string, (id: Promise<string | null>) => void>} */
let waiting = new Map();

/** A message's name of a job: the tenant's mark, where it has one, and the id that the submitter chose.
 * @param {string} name */
function parts(name) {
  const found = /^@([^:]*):(.*)$/s.exec(name);
  return found ? { tenant: found[1].replaceAll("%3A", ":").replaceAll("%25", "%"), key: found[2] } : { tenant: "", key: name };
}

/** @param {string} filter @returns {Promise<{id: string, job_id: string}[]>} */
const listed = (filter) => read("jobs", { filter, fields: "id,job_id", limit: TOGETHER });

/** The store's ids of these, by the names under which messages know them.
 * @param {string[]} names */
async function idsOf(names) {
  /** @type {Map<string, string>} */
  const found = new Map();
  const ids = names.filter((name) => UUID.test(name));
  if (ids.length) for (const job of await listed(`id:${ids.join()}`)) found.set(job.id, job.id);
  /** @type {Map<string, string[]>} */
  const byTenant = new Map();
  for (const name of names) {
    const { tenant, key } = parts(name);
    if (!found.has(name) && key) byTenant.set(tenant, [...(byTenant.get(tenant) ?? []), name]);
  }
  await Promise.all([...byTenant].map(async ([tenant, those]) => {
    const jobs = await listed(`tenant:${quoted(tenant)} key:${those.map((name) => quoted(parts(name).key)).join()}`);
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
  // What could not be asked is asked again the next time.
  answer.catch(() => answers.delete(key));
  answers.set(key, answer);
  return answer;
}

/** A link to a job.
 * @param {{name: string, queue?: string, children?: unknown}} props `queue`: where its dead letters would be. */
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
