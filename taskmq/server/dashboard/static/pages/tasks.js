// @ts-check
/** Tasks, with a form generated from the schema of their arguments. */
import { may, part, send } from "../lib/api.js";
import { useData } from "../lib/data.js";
import { useMoreFields, ValueForm } from "../lib/fields.js";
import { pretty, quote } from "../lib/format.js";
import { html, useState } from "../lib/html.js";
import { Code, Empty, Facts, Head, notify, Section, Loading, Table, TextField } from "../lib/parts.js";
import { go, to } from "../lib/route.js";

/** Fields of a submission that the form has, or that repeat others. */
const OWN = ["job_type", "task", "payload", "kwargs", "args", "delay", "node_labels"];

function RunForm({ task }) {
  const [delay, setDelay] = useState("");
  const more = useMoreFields("SubmitBody", OWN);
  const run = async (/** @type {unknown} */ payload) => {
    const made = await send("jobs", { job_type: task.name, payload, ...(delay ? { delay } : {}), ...more.payload() });
    notify("Submitted.");
    go(["jobs", made.id]);
  };
  return html`<${Section} title="Run"><${ValueForm} schema=${{ properties: {}, ...task.arguments }} verb="Run" act=${run} none="The task takes no arguments.">
    <${TextField} label="Delay" hint="Such as 10m. Leave empty to run now." value=${delay} set=${setDelay} />
    ${more.form}<//><//>`;
}

const Task = ({ name }) => html`<${Loading} title=${name} loaded=${useData(`tasks/${part(name)}`, {}, [])}>${(/** @type {any} */ task) => html`
  <${Head} of=${{ path: `tasks/${part(name)}`, query: {} }} title=${name} sub=${task.description}><a href=${to("jobs", { filter: `task:${quote(name)}` })}>Jobs</a>${may("metrics.read") && html`<a href=${to("metrics", { task: name })}>Metrics</a>`}${may("logs.read") && html`<a href=${to("logs", { task: name })}>Logs</a>`}<//>
  <div class="two"><div>${may("jobs.submit") && html`<${RunForm} task=${task} />`}</div>
  <div><${Section} title="Details"><${Facts} of=${[["Queue", html`<a href=${to(["queues", task.queue])}>${task.queue}</a>`], ["Registered by", task.is_own ? "the server's own app" : "a worker or scheduler"], ["Positional arguments", task.positional.join(", ")]]} /><//>
  <${Section} title="Arguments, as JSON Schema"><${Code} label="Schema" text=${pretty(task.arguments)} /><//></div></div>`}<//>`;

function List({ cursor }) {
  const loaded = useData("tasks", { cursor, limit: 100 }, []);
  return html`<${Head} of=${loaded} title="Tasks" /><${Loading} loaded=${loaded}>${(/** @type {any} */ { items, next }) => items.length
    ? html`<${Table} label="Tasks" columns=${["Task", "Description", "Queue", ""]}>${items.map((/** @type {any} */ one) => html`<tr key=${one.name} data-row>
        <td><a href=${to(["tasks", one.name])}>${one.name}</a></td><td>${one.description}</td><td>${one.queue}</td><td><a href=${to("jobs", { filter: `task:${quote(one.name)}` })}>Jobs<span class="sr"> of ${one.name}</span></a></td></tr>`)}<//>
        ${next && html`<div class="bar"><a href=${to("tasks", { cursor: next })}>Next page</a></div>`}`
    : html`<${Empty} title="No tasks"><p>Define one in the server's app:</p><${Code} label="A task" text=${"@app.task\ndef resize(photo: int) -> str: ..."} /><//>`}<//>`;
}

export default function Tasks({ rest, query }) {
  return rest.length ? html`<${Task} name=${rest[0]} />` : html`<${List} cursor=${query.cursor ?? ""} />`;
}
