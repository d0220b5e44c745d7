// @ts-check
/** The reasons why a job waits: the blocking one first. */
import { may, part } from "./api.js";
import { useData } from "./data.js";
import { count } from "./format.js";
import { html } from "./html.js";
import { Icon } from "./icons.js";
import { Section, When } from "./parts.js";
import { to } from "./route.js";

/** Labels of the kinds; a reason that keeps the job from its run has an icon. */
const KINDS = /** @type {any} */ ({
  // An unknown kind must not find inherited properties.
  __proto__: null,
  held: ["Hold", "held"], dependency: ["Dependencies", "waiting"], time: ["Time", "scheduled"], paused: ["Pause", "held"], scheduler: ["Scheduler", "failed"],
  broker: ["Broker", "failed"], workers: ["Workers", "workers"], placement: ["Nodes", "nodes"], limit: ["Limit", "quotas"], cap: ["Pool share", "pools"],
  quota: ["Quota"], pool: ["Pool share"], turn: ["Turn"], message: ["Message"], running: ["Run"], interruption: ["Interruption"], cancellation: ["Cancellation"], error: ["Last attempt"], unknown: ["Unknown"],
});

/** @typedef {{kind: string, text: string, subject: string}} Reason */

/** Return the reason that keeps a job from its run, otherwise the first.
 * @param {Reason[]} items @returns {Reason | undefined} */
export const blocking = (items) => items.find((one) => KINDS[one.kind]?.[1]) ?? items[0];

/** Pages of the subjects by kind: page, permission, label. */
const PAGES = /** @type {any} */ ({
  __proto__: null,
  dependency: ["jobs", "jobs.read", "Job"], paused: ["queues", "queues.read", "Queue"], workers: ["queues", "queues.read", "Queue"], turn: ["queues", "queues.read", "Queue"], message: ["queues", "queues.read", "Queue"],
  placement: ["nodes", "nodes.read", "Nodes"], cap: ["pools", "pools.read", "Pool"], pool: ["pools", "pools.read", "Pool"], quota: ["quotas", "pools.read", "Quotas"],
});

/** @param {{of: Reason}} props */
function Source({ of: { kind, subject } }) {
  const [page, needs, label] = PAGES[kind] ?? [];
  if (!page || !may(needs)) return null;
  return html` <a href=${to([page, page === "quotas" ? "" : subject])}>${page === "quotas" || !subject ? label : `${label} ${subject}`}</a>`;
}

/** @param {{id: string, runs: boolean}} props */
export function Reasons({ id, runs }) {
  const { data } = useData(`jobs/${part(id)}/explain`, { });
  if (!data?.items.length) return null;
  const first = blocking(data.items);
  const items = [first, ...data.items.filter((/** @type {Reason} */ one) => one !== first)];
  return html`<${Section} title=${runs ? "What is this job doing?" : "Why is this job waiting?"}><ol class="gates">${items.map((one, at) => html`<li key=${at} class=${!at && !runs ? "is-blocking" : ""}>
    <${Icon} name=${KINDS[one.kind]?.[1] ?? "queued"} /><strong>${KINDS[one.kind]?.[0] ?? one.kind}</strong><span>${one.text}<${Source} of=${one} /></span></li>`)}</ol><${Start} of=${data.start} /><//>`;
}

/** The position of a ready job, and its expected start. @param {{of: any}} props */
const Start = ({ of }) => of && html`<dl class="start"><div><dt>Position in the queue</dt><dd>${count(of.position)}</dd></div><div><dt>Expected start</dt><dd><${When} at=${of.likely} /></dd></div><div><dt>Range</dt><dd><${When} at=${of.earliest} exact /> to <${When} at=${of.latest} exact /></dd></div></dl>`;
