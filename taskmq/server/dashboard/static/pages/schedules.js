// @ts-check
/** Schedules: next and past occurrences. */
import { call, may, part, send } from "../lib/api.js";
import { useData, useNow } from "../lib/data.js";
import { useMoreFields } from "../lib/fields.js";
import { Search } from "../lib/filter.js";
import { ago, count, instant, validZone, offset } from "../lib/format.js";
import { html, useEffect, useState } from "../lib/html.js";
import { Action, Code, Confirm, Empty, Facts, Field, Head, notify, Section, Select, State, Loading, Table, TextField, When, Pager } from "../lib/parts.js";
import { go, to } from "../lib/route.js";
import { ScheduleChanges } from "../lib/schedule_changes.js";

function Actions({ schedule, reload, single = false }) {
  const [open, show] = useState("");
  if (!may("schedules.operate")) return null;
  const where = `schedules/${part(schedule.name)}`;
  const close = () => show("");
  const run = async () => { const { job_id } = await send(`${where}/run`); notify("Submitted."); if (single) go(["jobs", job_id]); };
  return html`<${Action} act=${run} mark="r" title="r">Run now<//>
    <${ScheduleChanges} schedule=${schedule} reload=${reload} canBackfill=${single} />
    ${single && schedule.is_dynamic && may("schedules.change") && html`<button type="button" onClick=${() => show("edit")}>Edit</button>
      <button type="button" class="danger" onClick=${() => show("remove")}>Remove</button>`}
    ${open === "edit" && html`<${Put} present=${schedule} close=${close} changed=${reload} />`}
    ${open === "remove" && html`<${Confirm} title=${`Remove ${schedule.name}`} verb="Remove" close=${close} act=${async () => { await call("DELETE", where); go("schedules"); }}><p>It starts no more jobs. Jobs it started continue.</p><//>`}`;
}

/** Explains a rule shortly after it was typed. */
function Meaning({ rule }) {
  const [found, set] = useState(/** @type {{words?: any, error?: any}} */ ({}));
  const key = JSON.stringify(rule);
  useEffect(() => {
    let isOld = false;
    const timer = rule ? setTimeout(() => send("schedules/explain", rule).then((words) => { if (!isOld) set({ words }); }, (error) => { if (!isOld) set({ error }); }), 300) : 0;
    if (!rule) set({});
    return () => { isOld = true; clearTimeout(timer); };
  }, [key]);
  const { words, error } = found;
  return html`<div role="status">${error ? html`<p class="reason">${error.message}</p>` : words && html`<p>Due ${words.means}${words.clock_changes && html`<br /><span class="dim">${words.clock_changes}</span>`}</p>
    <${Code} label="Next occurrences of this rule" text=${words.next.join("\n") || "never"} />`}</div>`;
}

/** Labels of the policies for late and overlapping occurrences. */
const POLICIES = /** @type {Record<string, Record<string, string>>} */ ({
  catchup: { once: "start the last one", all: "start all", skip: "skip all" },
  overlap: { allow: "start anyway", skip: "skip", buffer_one: "buffer one", buffer_all: "buffer all", cancel_other: "cancel earlier ones" },
});

/** Fields of a schedule that the form has. */
const OWN = ["task", "args", "kwargs", "cron", "every", "at", "tz", "catchup", "overlap"];

/** Format a time for an input in this browser's time zone. */
function local(/** @type {string} */ at) {
  const moment = new Date(at);
  return new Date(moment.getTime() - moment.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

/** Return the initial values of the form. */
function initialValues(/** @type {any} */ present) {
  const said = { name: "", task: "", kind: "cron", when: "", tz: Intl.DateTimeFormat().resolvedOptions().timeZone, kwargs: "{}", catchup: "once", overlap: "allow" };
  if (!present) return said;
  const { name, task, cron, every, at, tz, kwargs, catchup, overlap } = present;
  const [kind, when] = cron ? ["cron", cron] : every ? ["every", `${every}s`] : at ? ["at", local(at)] : ["cron", ""];
  return { name, task: task ?? "", kind, when, tz, kwargs: kwargs ? JSON.stringify(kwargs, null, 2) : "", catchup, overlap };
}

/** Adds or changes a schedule. Only changed fields are sent.
 * @param {{close: () => void, present?: any, changed?: () => void}} given */
function Put({ close, present, changed = () => {} }) {
  const tasks = useData("tasks", { limit: 200 }, []);
  const [first] = useState(() => initialValues(present));
  const [said, say] = useState(first);
  const more = useMoreFields("PutScheduleBody", OWN);
  const set = (/** @type {string} */ field) => (/** @type {string} */ text) => say({ ...said, [field]: text });
  const { name, task, kind, when, tz, kwargs, catchup, overlap } = said;
  const at = new Date(when);
  const rule = !when ? null : kind === "cron" ? { cron: when, tz } : kind === "every" ? { every: when } : Number.isNaN(at.getTime()) ? null : { at: at.toISOString() };
  const act = async () => {
    const where = `schedules/${part(name)}`;
    const all = { task, kwargs: JSON.parse(kwargs || "{}"), catchup, overlap };
    if (!present) {
      await call("PUT", where, { body: { ...all, ...rule, ...more.payload() } });
      notify("Schedule added.");
      go(["schedules", name]);
      return;
    }
    const differs = (/** @type {(keyof typeof first)[]} */ ...fields) => fields.some((field) => said[field] !== first[field]);
    const other = Object.fromEntries(Object.entries(all).filter(([field]) => differs(/** @type {keyof typeof first} */ (field))));
    await call("PATCH", where, { body: { ...other, ...(differs("kind", "when", "tz") ? rule : {}), ...more.payload() } });
    notify(`${name} changed.`);
    changed();
  };
  const pick = (/** @type {string} */ field) => html`<${Select} of=${Object.entries(POLICIES[field] ?? {})} value=${/** @type {any} */ (said)[field]} set=${set(field)} />`;
  const isFlow = present && present.task === null;
  const hints = /** @type {Record<string, string>} */ ({ cron: "Minute, hour, day, month, weekday: 30 2 * * *", every: "Such as 15m", at: "In this browser's time zone" });
  return html`<${Confirm} title=${present ? `Change ${name}` : "Add a schedule"} verb=${present ? "Change" : "Add"} close=${close} act=${act}>
    ${!present && html`<${TextField} label="Name" value=${said.name} required set=${set("name")} />`}
    ${!isFlow && html`<${TextField} label="Starts" value=${said.task} required list="known-tasks" set=${set("task")} />`}
    <datalist id="known-tasks">${(tasks.data?.items ?? []).map((/** @type {any} */ one) => html`<option key=${one.name} value=${one.name} />`)}</datalist>
    <${Field} label="Rule"><${Select} of=${["cron", ["every", "interval"], ["at", "once"]]} value=${said.kind} set=${set("kind")} /><//>
    <${TextField} label="When" hint=${hints[said.kind]} type=${said.kind === "at" ? "datetime-local" : "text"} value=${said.when} required set=${set("when")} />
    ${said.kind === "cron" && html`<${TextField} label="Time zone" value=${said.tz} required set=${set("tz")} />`}
    <${Meaning} rule=${rule} />
    <${Field} label="Missed occurrences" hint="While no scheduler ran">${pick("catchup")}<//>
    ${!isFlow && html`<${Field} label="While an earlier one runs">${pick("overlap")}<//>`}
    ${!(present && present.kwargs === null) && html`<${Field} label="Keyword arguments, as JSON"><textarea value=${said.kwargs} spellcheck=${false} onInput=${(/** @type {any} */ e) => set("kwargs")(e.target.value)} /><//>`}
    ${more.form}<//>`;
}

/** The next occurrences, with a note where the clock changes between two of them. */
function Next({ name, tz }) {
  const now = useNow();
  const zone = validZone(tz);
  const here = Intl.DateTimeFormat().resolvedOptions().timeZone;
  return html`<${Section} title="Next occurrences"><${Loading} loaded=${useData(`schedules/${part(name)}/next`, { count: 10 })}>${(/** @type {any} */ { items }) => html`<${Table} label="Next occurrences" columns=${[`Schedule time (${zone})`, `Local time (${here})`, "When"]}>${items.map((/** @type {string} */ at, /** @type {number} */ i) => html`<tr key=${at}>
        <td>${instant(at, zone)}${i > 0 && offset(at, zone) !== offset(items[i - 1], zone) ? html` <span class="state s-retrying">clock changed</span>` : null}</td><td>${instant(at)}</td><td>${ago(at, now)}</td></tr>`)}<//>`}<//><//>`;
}

/** Return the policy and limits of a schedule. */
function policy(/** @type {any} */ one) {
  return [
    ["Missed occurrences", POLICIES.catchup?.[one.catchup] ?? one.catchup],
    ["While earlier ones run", (POLICIES.overlap?.[one.overlap] ?? one.overlap) + (one.overlap === "allow" ? "" : `, ${one.max_concurrency} at a time`)],
    ["After a pause", one.on_resume === "skip" ? "skip occurrences of the pause" : "as missed occurrences"],
    ...(one.jitter ? [["Jitter", `${one.jitter} s`]] : []),
    ...(one.start ? [["From", html`<${When} at=${one.start} />`]] : []),
    ...(one.end ? [["Until", html`<${When} at=${one.end} />`]] : []),
    ...(one.exclude ? [["Not on", one.exclude.join(", ")]] : []),
    ...(one.max_runs ? [["At most", `${count(one.max_runs)} occurrences`]] : []),
  ];
}

function Schedule({ name }) {
  const loaded = useData(`schedules/${part(name)}`);
  return html`<${Loading} loaded=${loaded} title=${name}>${(/** @type {any} */ one) => html`
    <${Head} of=${loaded} title=${name} sub=${`${one.rule}, starts ${one.starts}`}><${Actions} schedule=${one} reload=${loaded.reload} single /><//>
    ${one.paused && html`<p class="reason">Paused <${When} at=${one.paused} /> ${one.note}</p>`}
    ${one.refused && html`<p class="reason">The schedule cannot fire and tries again: ${one.refused}</p>`}
    <div class="two"><div><${Next} name=${name} tz=${one.tz} /></div><div>
      <${Section} title="Details"><${Facts} of=${[["Fired", count(one.fired)], ["Late", count(one.late)], ["Missed", count(one.missed)], ["Skipped", count(one.skipped)], ["Failed", count(one.failed)], ["Waiting", count(one.waiting)], ["Defined", one.is_dynamic ? "at run time" : "in code"]]} />
        ${one.active.length > 0 && html`<p>Waiting or running: ${one.active.map((/** @type {string} */ id) => html`<a key=${id} href=${to(["jobs", id])}>${id}</a> `)}</p>`}<//>
      <${Section} title="Policy"><${Facts} of=${policy(one)} />
        ${one.args !== null && html`<${Code} label="Arguments" text=${JSON.stringify(one.args.length ? { args: one.args, kwargs: one.kwargs } : one.kwargs, null, 2)} />`}<//>
      <${Section} title="Recent occurrences"><${Table} none="None yet." label="Recent occurrences" columns=${["Due", "Started", "Kind"]}>${one.history.map((/** @type {any} */ each, /** @type {number} */ at) => html`<tr key=${at}><td><${When} at=${each.scheduled_for} /></td><td><${When} at=${each.emitted} /></td><td>${each.kind}</td></tr>`)}<//><//>
    </div></div>`}<//>`;
}

function List({ query }) {
  const { prefix = "", cursor = "" } = query;
  const loaded = useData("schedules", { prefix, limit: 50, ...(cursor ? { cursor } : {}) });
  const [open, show] = useState(false);
  return html`<${Head} of=${loaded} title="Schedules">${may("schedules.change") && html`<button type="button" onClick=${() => show(true)}>Add a schedule</button>`}<//>
    ${open && html`<${Put} close=${() => show(false)} />`}<div class="bar"><${Search} name="prefix" label="Name prefix" placeholder="name prefix" /></div><${Loading} loaded=${loaded}>${(/** @type {any} */ { items, next }) => items.length
    ? html`<${Table} label="Schedules" columns=${["Schedule", "When", "Starts", "Next", ["Missed occurrences", "p4"], ["Defined", "p3"], ""]}>${items.map((/** @type {any} */ one) => html`<tr key=${one.name} data-row>
        <td><a href=${to(["schedules", one.name])}>${one.name}</a></td><td>${one.rule}</td><td>${one.starts}</td>
        <td>${one.paused ? html`<${State} state="paused" kind="held" /> ${one.note}` : html`<${When} at=${one.next} />`}</td>
        <td class="p4">${POLICIES.catchup?.[one.catchup] ?? one.catchup}</td><td class="p3">${one.is_dynamic ? "at run time" : "in code"}</td>
        <td><div class="actions"><${Actions} schedule=${one} reload=${loaded.reload} /></div></td></tr>`)}<//>
      <${Pager} next=${next} />`
    : prefix || cursor ? html`<${Empty} title="No matching schedules"><p><a href=${to("schedules")}>All schedules</a></p><//>`
    : html`<${Empty} title="No schedules"><p>Define one in code, above its task:</p><${Code} label="Examples" text=${'@app.every("5m")\n@app.cron("30 2 * * *", tz="Europe/Paris")\n@app.cron("0 9 * * 1-5")'} /><//>`}<//>`;
}

export default function Schedules({ rest, query }) {
  return rest.length ? html`<${Schedule} name=${rest[0]} />` : html`<${List} query=${query} />`;
}
