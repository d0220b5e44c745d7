// @ts-check
/** A job sent to the broker, from workers, dead letters and failures. */
import { may, part, send } from "../lib/api.js";
import { useData } from "../lib/data.js";
import { count, span } from "../lib/format.js";
import { html } from "../lib/html.js";
import { Action, Code, Empty, Facts, Head, notify, Section, Loading, State, When } from "../lib/parts.js";
import { to } from "../lib/route.js";

const PARKING = "taskmq.parking";

const Run = ({ of }) => html`<${Section} title="Running"><${Facts} of=${[["State", html`<${State} state="running" />`], ["Worker", of.worker], ["Task", of.task],
  ["Queue", of.queue], ["Attempt", of.attempt], ["Run time", span(of.seconds)]]} /><//>`;

/** The details of a dead or parked job.
 * @param {{of: any, children: unknown, text: string}} props */
const Death = ({ of, text, children }) => html`<p><strong>${text || of.reason}</strong></p>
  <${Facts} of=${[["Task", of.task], ["Tenant", of.tenant], ["Queue", of.queue], ["Attempt", of.attempt], ["Reason", of.reason], ["Worker", of.worker],
    ["Sent", of.enqueued && html`<${When} at=${of.enqueued} exact />`], ["Died", html`<${When} at=${of.died ?? of.at} exact />`], ["Run time", of.seconds && span(of.seconds)],
    ["Replayed", of.replayed ? `${of.replayed} times` : ""]]} />${children}`;

const Trace = ({ text, label }) => html`${text && html`<details><summary>${label}</summary><${Code} label=${label} text=${text} /></details>`}`;

export default function Message({ rest, query }) {
  const [id] = rest;
  const failures = useData("failures", { job_id: id, traceback: true, limit: 50 });
  const workers = useData(may("workers.read") ? "workers" : null, { max_age: 3 }, ["job", "worker"]);
  const queues = useData(may("dead_letters.read") ? "dead-letters" : null);
  const runs = (workers.data?.items ?? []).flatMap((/** @type {any} */ one) => one.jobs.filter((/** @type {any} */ run) => run.job_id === id).map((/** @type {any} */ run) => ({ ...run, worker: one.name })));
  const known = failures.data?.items ?? [];
  const where = query.queue || known[0]?.letter || (known[0]?.event === "parked" ? PARKING : known[0]?.queue) || runs[0]?.queue;
  const dead = useData(queues.data?.items.includes(where) ? `dead-letters/${part(where)}` : null, { job: id });
  const letters = dead.data?.items ?? [];
  // A failure with a dead letter is shown as the letter.
  const failed = known.filter((/** @type {any} */ one) => !letters.some((/** @type {any} */ letter) => letter.died === one.at));
  const again = async () => {
    const done = await send(`dead-letters/${part(where)}/replay`, { job: id });
    notify(done.replayed ? "Replayed." : "Not replayed: it was replayed too often, or its queue no longer exists.");
    queues.reload();
    dead.reload();
  };
  const isKnown = runs.length + letters.length + failed.length > 0;
  return html`<${Head} title=${id} sub="Sent to the broker, not submitted to the store">
      ${letters.length > 0 && may("dead_letters.replay") && html`<${Action} act=${again} mark="r" kind="primary" title="r">Replay<//>`}<//>
    ${runs.map((/** @type {any} */ one) => html`<${Run} key=${one.worker} of=${one} />`)}
    ${queues.error || dead.error ? html`<${Loading} loaded=${dead.error ? dead : queues}>${() => null}<//>` : null}
    ${letters.map((/** @type {any} */ one, /** @type {number} */ at) => html`<${Section} key=${at} title="Dead letter" actions=${html`<a href=${to(["dead-letters", where])}>All of ${where}</a>`}>
      <${Death} of=${one} text=${one.error}><${Code} label="Traceback" text=${one.traceback || one.error} /><//><//>`)}
    <${Loading} loaded=${failures}>${() => (failed.length > 0
      ? html`<${Section} title=${failed.length > 1 ? `Failed ${count(failed.length)} times` : "Failed"}>
        ${!letters.length && !runs.length && html`<p class="dim">The dead letter was replayed or deleted. Later runs are only recorded if they fail.</p>`}
        ${failed.map((/** @type {any} */ one, /** @type {number} */ at) => html`<div key=${one.at}><${Death} of=${one} text=${[one.error, one.message].filter(Boolean).join(": ")}><${Trace} text=${one.traceback} label=${`Traceback ${failed.length - at}`} /><//></div>`)}<//>`
      : !isKnown && !workers.isLoading && !queues.isLoading && !dead.isLoading && html`<${Empty} title="Job not found">
        <p>It waits in a queue, succeeded, or was never sent. Failures are kept for 30 days.</p><p><a href=${to(["jobs", id])}>Look for it in the store</a></p><//>`)}<//>`;
}
