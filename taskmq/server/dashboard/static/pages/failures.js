// @ts-check
/** Jobs of the broker lane that ended badly. */
import { useData } from "../lib/data.js";
import { span } from "../lib/format.js";
import { html, useEffect, useState } from "../lib/html.js";
import { Empty, Head, Shown, Table, When } from "../lib/parts.js";
import { change, to } from "../lib/route.js";

export default function Failures({ query }) {
  const { task = "", error = "", cursor = "" } = query;
  const [name, setName] = useState(task);
  useEffect(() => setName(task), [task]);
  const submit = (/** @type {Event} */ event) => { event.preventDefault(); change({ task: name.trim(), cursor: "" }); };
  return html`<${Head} title="Failures" sub="Jobs that were sent, and not submitted to the store"><a href=${to("jobs", { filter: "status:failed,expired,upstream_failed" })}>Those of the store</a><//>
    <div class="bar"><form role="search" onSubmit=${submit}><label class="sr" for="task">Task</label><input id="task" data-filter value=${name} placeholder="a task" autoComplete="off" onInput=${(/** @type {any} */ e) => setName(e.target.value)} /><button type="submit">Show</button></form>
      ${(task || error) && html`<a href=${to("failures")}>All</a>`}</div>
    <${Shown} loaded=${useData("failures", { task, error, cursor, limit: 50 })}>${(/** @type {any} */ { items, next }) => html`
      ${items.length ? html`<${Table} label="Failures" columns=${["When", "Job", "Task", "Error", "Queue", "Attempt", "Ran", "Worker", "Letter"]}>${items.map((/** @type {any} */ one) => html`<tr key=${`${one.job_id} ${one.at}`} data-row>
          <td><${When} at=${one.at} /></td><td><a href=${to(["failures", one.job_id])}>${one.job_id}</a></td><td><a href=${to("failures", { task: one.task, error })}>${one.task}</a></td>
          <td><a href=${to("failures", { task, error: one.error })}>${one.error || one.reason}</a></td><td>${one.queue}</td><td class="number">${one.attempt}</td><td class="number">${span(one.seconds)}</td><td>${one.worker}</td>
          <td><a href=${to(["dead-letters", one.queue])}>Dead letters<span class="sr"> of ${one.queue}</span></a></td></tr>`)}<//>`
        : html`<${Empty} title="No failures"><p>None was told${task || error ? " that fits" : ""}.</p><//>`}
      <div class="bar">${cursor && html`<a href=${to("failures", { task, error })}>First page</a>`}${next && html`<a href=${to("failures", { task, error, cursor: next })}>Next page</a>`}</div>`}<//>`;
}
