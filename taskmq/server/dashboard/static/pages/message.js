// @ts-check
/** A job that was sent: what workers, dead letters and failures know of it. */
import { may, part, send } from "../lib/api.js";
import { useData } from "../lib/data.js";
import { count, span } from "../lib/format.js";
import { html } from "../lib/html.js";
import { Action, Code, Empty, Facts, Head, notify, Section, Shown, State, When } from "../lib/parts.js";
import { to } from "../lib/route.js";

const PARKING = "taskmq.parking";

const Run = ({ of }) => html`<${Section} title="Runs now"><${Facts} of=${[["State", html`<${State} state="running" />`], ["Worker", of.worker], ["Task", of.task],
  ["Queue", of.queue], ["Attempt", of.attempt], ["For", span(of.seconds)]]} /><//>`;

/** What died, or could not be run, and how.
 * @param {{of: any, children: unknown, text: string}} props */
const Death = ({ of, text, children }) => html`<p><strong>${text || of.reason}</strong></p>
  <${Facts} of=${[["Task", of.task], ["Tenant", of.tenant], ["Queue", of.queue], ["Attempt", of.attempt], ["Reason", of.reason], ["Worker", of.worker],
    ["Sent", of.enqueued && html`<${When} at=${of.enqueued} exact />`], ["Died", html`<${When} at=${of.died ?? of.at} exact />`], ["Ran", of.seconds && span(of.seconds)],
    ["Sent again", of.replayed ? `${of.replayed} times` : ""]]} />${children}`;

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
  // What is known by its letter alone is shown as that.
  const failed = known.filter((/** @type {any} */ one) => !letters.some((/** @type {any} */ letter) => letter.died === one.at));
  const again = async () => {
    const done = await send(`dead-letters/${part(where)}/replay`, { job: id });
    notify(done.replayed ? "It was sent again." : "It stays a dead letter: it was sent again too often, or no queue takes it.");
    queues.reload();
    dead.reload();
  };
  const isKnown = runs.length + letters.length + failed.length > 0;
  return html`<${Head} title=${id} sub="Sent to the broker, and not submitted to the store">
      ${letters.length > 0 && may("dead_letters.replay") && html`<${Action} act=${again} mark="r" kind="primary" title="r">Send again<//>`}<//>
    ${runs.map((/** @type {any} */ one) => html`<${Run} key=${one.worker} of=${one} />`)}
    ${queues.error || dead.error ? html`<${Shown} loaded=${dead.error ? dead : queues}>${() => null}<//>` : null}
    ${letters.map((/** @type {any} */ one, /** @type {number} */ at) => html`<${Section} key=${at} title="Is a dead letter" actions=${html`<a href=${to(["dead-letters", where])}>All of ${where}</a>`}>
      <${Death} of=${one} text=${one.error}><${Code} label="Traceback" text=${one.traceback || one.error} /><//><//>`)}
    <${Shown} loaded=${failures}>${() => (failed.length > 0
      ? html`<${Section} title=${failed.length > 1 ? `Has failed ${count(failed.length)} times` : "Has failed"}>
        ${!letters.length && !runs.length && html`<p class="dim">No dead letter is known any more: it was sent again, or deleted. What became of it since is kept only where it fails again.</p>`}
        ${failed.map((/** @type {any} */ one, /** @type {number} */ at) => html`<div key=${one.at}><${Death} of=${one} text=${[one.error, one.message].filter(Boolean).join(": ")}><${Trace} text=${one.traceback} label=${`Traceback ${failed.length - at}`} /><//></div>`)}<//>`
      : !isKnown && !workers.isLoading && !queues.isLoading && !dead.isLoading && html`<${Empty} title="Nothing is known of this job">
        <p>It waits at the broker, has ended well, or was never sent. Failures are kept for 30 days.</p><p>Is it one of the store? <a href=${to(["jobs", id])}>See there</a></p><//>`)}<//>`;
}
