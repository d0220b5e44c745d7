// @ts-check
/** Tasks, with a form generated from the schema of their arguments. */
import { ApiError, may, part, send } from "../lib/api.js";
import { useData } from "../lib/data.js";
import { pretty, quote } from "../lib/format.js";
import { html, useState } from "../lib/html.js";
import { Code, Empty, Facts, Failure, Field, Head, notify, Section, Loading, Table } from "../lib/parts.js";
import { go, to } from "../lib/route.js";

/** Resolve a schema reference within the same document.
 * @param {any} schema @param {any} whole @returns {any} */
function resolve(schema, whole) {
  let found = schema ?? {};
  for (let turn = 0; found.$ref && turn < 10; turn += 1) {
    found = String(found.$ref).replace(/^#\//, "").split("/").reduce((at, name) => at?.[name.replace(/~1/g, "/").replace(/~0/g, "~")], whole) ?? {};
  }
  return found;
}

/** @param {any} schema @param {any} whole */
function kindOf(schema, whole) {
  const found = resolve(schema, whole);
  if (Array.isArray(found.enum)) return { kind: "enum", values: found.enum };
  if (found.type === "string" && found.format === "date-time") return { kind: "text" };
  if (found.type === "string") return { kind: "text" };
  if (found.type === "integer" || found.type === "number") return { kind: "number" };
  if (found.type === "boolean") return { kind: "boolean" };
  return { kind: "json" };
}

/** A single argument. Empty fields are not sent.
 * @param {{name: string, schema: any, whole: any, isNeeded: boolean, value: string | undefined, set: (value: string | undefined) => void}} props */
function Argument({ name, schema, whole, isNeeded, value, set }) {
  const { kind, values } = /** @type {any} */ (kindOf(schema, whole));
  const found = resolve(schema, whole);
  const hint = [found.description, isNeeded ? "" : `optional${schema.default === undefined ? "" : `, default ${JSON.stringify(schema.default)}`}`].filter(Boolean).join(" · ");
  const input = (/** @type {any} */ e) => set(e.target.value);
  const label = `${name}${isNeeded ? " (required)" : ""}`;
  if (kind === "enum" || kind === "boolean") {
    const choices = kind === "boolean" ? [true, false] : values;
    return html`<${Field} label=${label} hint=${hint}><select value=${value ?? ""} required=${isNeeded} onChange=${input}><option value=""></option>${choices.map((/** @type {unknown} */ one) => html`<option key=${String(one)} value=${JSON.stringify(one)}>${String(one)}</option>`)}</select><//>`;
  }
  if (kind === "json") return html`<${Field} label=${label} hint=${`${hint}${hint ? " · " : ""}as JSON`}><textarea rows="3" value=${value ?? ""} required=${isNeeded} spellcheck=${false} onInput=${input} /><//>`;
  return html`<${Field} label=${label} hint=${hint}><input type=${kind === "number" ? "number" : "text"} step="any" value=${value ?? ""} required=${isNeeded && kind === "number"} onInput=${input} /><//>`;
}

/** @param {any} task @param {Record<string, string | undefined>} values */
function payloadOf(task, values) {
  /** @type {Record<string, unknown>} */
  const payload = {};
  const whole = task.arguments;
  for (const [name, schema] of Object.entries(whole.properties ?? {})) {
    const text = values[name];
    const needed = (whole.required ?? []).includes(name);
    const { kind } = kindOf(schema, whole);
    if (kind === "text" && (text || (needed && text !== undefined) || needed)) payload[name] = text ?? "";
    else if (kind === "number" && text) payload[name] = Number(text);
    else if (text) {
      try { payload[name] = JSON.parse(text); } catch { throw new ApiError({ status: 0, code: "json", detail: `${name} is not valid JSON.` }); }
    }
  }
  return payload;
}

function RunForm({ task }) {
  const [values, set] = useState(/** @type {Record<string, string | undefined>} */ ({}));
  const [delay, setDelay] = useState("");
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  const [busy, setBusy] = useState(false);
  const submit = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      const made = await send("jobs", { job_type: task.name, payload: payloadOf(task, values), ...(delay ? { delay } : {}) });
      notify("Submitted.");
      go(["jobs", made.id]);
    } catch (failure) {
      setError(/** @type {Error} */ (failure));
      setBusy(false);
    }
  };
  const properties = Object.entries(task.arguments.properties ?? {});
  return html`<${Section} title="Run"><form onSubmit=${submit}>
    ${properties.map(([name, schema]) => html`<${Argument} key=${name} name=${name} schema=${schema} whole=${task.arguments} isNeeded=${(task.arguments.required ?? []).includes(name)} value=${values[name]} set=${(/** @type {any} */ value) => set({ ...values, [name]: value })} />`)}
    ${!properties.length && html`<p class="dim">The task takes no arguments.</p>`}
    <${Field} label="Delay" hint="Such as 10m. Leave empty to run now."><input value=${delay} onInput=${(/** @type {any} */ e) => setDelay(e.target.value)} /><//>
    ${error && html`<${Failure} error=${error} />`}
    <button type="submit" class="primary" disabled=${busy}>Run</button>
  </form><//>`;
}

const Task = ({ name }) => html`<${Loading} title=${name} loaded=${useData(`tasks/${part(name)}`, {}, [])}>${(/** @type {any} */ task) => html`
  <${Head} title=${name} sub=${task.description}><a href=${to("jobs", { filter: `task:${quote(name)}` })}>Jobs</a>${may("metrics.read") && html`<a href=${to("metrics", { task: name })}>Metrics</a>`}${may("logs.read") && html`<a href=${to("logs", { task: name })}>Logs</a>`}<//>
  <div class="two"><div>${may("jobs.submit") && html`<${RunForm} task=${task} />`}</div>
  <div><${Section} title="Details"><${Facts} of=${[["Queue", html`<a href=${to(["queues", task.queue])}>${task.queue}</a>`], ["Registered by", task.is_own ? "the server's own app" : "a worker or scheduler"], ["Positional arguments", task.positional.join(", ")]]} /><//>
  <${Section} title="Arguments, as JSON Schema"><${Code} label="Schema" text=${pretty(task.arguments)} /><//></div></div>`}<//>`;

function List({ cursor }) {
  return html`<${Head} title="Tasks" /><${Loading} loaded=${useData("tasks", { cursor, limit: 100 }, [])}>${(/** @type {any} */ { items, next }) => items.length
    ? html`<${Table} label="Tasks" columns=${["Task", "Description", "Queue", ""]}>${items.map((/** @type {any} */ one) => html`<tr key=${one.name} data-row>
        <td><a href=${to(["tasks", one.name])}>${one.name}</a></td><td>${one.description}</td><td>${one.queue}</td><td><a href=${to("jobs", { filter: `task:${quote(one.name)}` })}>Jobs<span class="sr"> of ${one.name}</span></a></td></tr>`)}<//>
        ${next && html`<div class="bar"><a href=${to("tasks", { cursor: next })}>Next page</a></div>`}`
    : html`<${Empty} title="No tasks"><p>Define one in the server's app:</p><${Code} label="A task" text=${"@app.task\ndef resize(photo: int) -> str: ..."} /><//>`}<//>`;
}

export default function Tasks({ rest, query }) {
  return rest.length ? html`<${Task} name=${rest[0]} />` : html`<${List} cursor=${query.cursor ?? ""} />`;
}
